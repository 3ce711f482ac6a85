import java.net.URI;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cognitosync.CognitoSyncClient;
import software.amazon.awssdk.services.cognitosync.model.*;

/** AWS' SDK 2 for Java with Amazon Cognito Sync, unchanged except for its endpoint. */
final class CognitoV2 {
    public static void main(String[] arguments) {
        Support.main(arguments, Map.of("operations", CognitoV2::operations));
    }

    private static CognitoSyncClient client(String user, String secret) {
        return CognitoSyncClient.builder().endpointOverride(URI.create(Support.environment("REGISTRATION_URL")))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create(user, secret))).build();
    }

    /** All seventeen operations. */
    private static void operations() throws Exception {
        String app = Support.environment("APP_ID");
        String pool = Support.environment("POOL");
        String identity = "us-east-1:" + Support.digits(8) + "-0000-4000-8000-" + Support.digits(12);
        String dataset = "no.te:s";
        String token = Support.digits(64);
        List<String> applications = List.of("arn:aws:sns:us-east-1:123456789012:app/GCM/shop");
        var device = client(app, Support.environment("APP_KEY"));
        var developer = client(app + ":master", Support.environment("MASTER_KEY"));

        var register = RegisterDeviceRequest.builder().identityPoolId(pool).identityId(identity).platform("GCM")
            .token(token).build();
        Support.refused("a pool without push sync", InvalidConfigurationException.class,
            () -> device.registerDevice(register));
        developer.setIdentityPoolConfiguration(SetIdentityPoolConfigurationRequest.builder().identityPoolId(pool)
            .pushSync(PushSync.builder().applicationArns(applications).build()).build());
        Support.check("the configuration", developer.getIdentityPoolConfiguration(
            GetIdentityPoolConfigurationRequest.builder().identityPoolId(pool).build()).pushSync()
                .applicationArns(), applications);
        String id = device.registerDevice(register).deviceId();
        var subscribe = SubscribeToDatasetRequest.builder().identityPoolId(pool).identityId(identity)
            .datasetName(dataset).deviceId(id).build();
        Support.refused("a dataset that is not there", ResourceNotFoundException.class,
            () -> device.subscribeToDataset(subscribe));

        var list = ListRecordsRequest.builder().identityPoolId(pool).identityId(identity).datasetName(dataset)
            .build();
        var empty = device.listRecords(list);
        Support.check("no dataset yet", empty.datasetExists(), false);
        Instant modified = Instant.ofEpochMilli(1_411_940_100_123L);
        var patch = RecordPatch.builder().op("replace").key("a/ключ 🐎/?&").value("é🔔 <&>").syncCount(0L)
            .deviceLastModifiedDate(modified).build();
        var removal = RecordPatch.builder().op("remove").key("gone").syncCount(0L).build();
        var saved = device.updateRecords(UpdateRecordsRequest.builder().identityPoolId(pool).identityId(identity)
            .datasetName(dataset).syncSessionToken(empty.syncSessionToken())
            .recordPatches(List.of(patch, removal)).clientContext("{\"client\":\"context\"}").build());
        Support.check("records of an update", saved.records().size(), 2);
        Support.check("the device's time", saved.records().get(0).deviceLastModifiedDate(), modified);
        device.subscribeToDataset(subscribe);
        var page = device.listRecords(ListRecordsRequest.builder().identityPoolId(pool).identityId(identity)
            .datasetName(dataset).lastSyncCount(0L).maxResults(1).build());
        Support.check("a page", page.records().get(0).value(), "é🔔 <&>");
        var next = device.listRecords(ListRecordsRequest.builder().identityPoolId(pool).identityId(identity)
            .datasetName(dataset).nextToken(page.nextToken()).build());
        Support.check("the next page", next.records().get(0).key(), "gone");

        // The other device of the same identity changes a record; this one is notified.
        String session = device.listRecords(list).syncSessionToken();
        var change = UpdateRecordsRequest.builder().identityPoolId(pool).identityId(identity)
            .datasetName(dataset).syncSessionToken(session).recordPatches(List.of(RecordPatch.builder()
            .op("replace").key("a/ключ 🐎/?&").value("changed").syncCount(1L).build())).build();
        device.updateRecords(change);
        Support.told(token);
        Support.refused("a stale count", ResourceConflictException.class, () -> device.updateRecords(change));
        Support.refused("an invalid session token", InvalidParameterException.class, () -> device.updateRecords(
            UpdateRecordsRequest.builder().identityPoolId(pool).identityId(identity).datasetName(dataset)
                .syncSessionToken("x").build()));

        var one = DescribeDatasetRequest.builder().identityPoolId(pool).identityId(identity).datasetName(dataset)
            .build();
        var described = device.describeDataset(one).dataset();
        Support.check("its records", described.numRecords(), 1L);
        Support.check("its time", described.lastModifiedDate().isAfter(modified), true);
        Support.check("datasets", device.listDatasets(ListDatasetsRequest.builder().identityPoolId(pool)
            .identityId(identity).maxResults(64).build()).datasets().get(0).datasetName(), dataset);
        Support.check("the identity's usage", device.describeIdentityUsage(
            DescribeIdentityUsageRequest.builder().identityPoolId(pool).identityId(identity).build())
                .identityUsage().datasetCount(), 1);
        Support.check("the pool's usage", developer.describeIdentityPoolUsage(
            DescribeIdentityPoolUsageRequest.builder().identityPoolId(pool).build()).identityPoolUsage()
                .dataStorage() > 0, true);
        Support.check("pools", developer.listIdentityPoolUsage(ListIdentityPoolUsageRequest.builder().build())
            .count(), 1);
        developer.setCognitoEvents(SetCognitoEventsRequest.builder().identityPoolId(pool)
            .events(Map.of("SyncTrigger", "")).build());
        Support.check("events", developer.getCognitoEvents(GetCognitoEventsRequest.builder().identityPoolId(pool)
            .build()).events(), Map.of());
        var bulk = BulkPublishRequest.builder().identityPoolId(pool).build();
        developer.bulkPublish(bulk);
        Support.until("the bulk publish", () -> developer.getBulkPublishDetails(
            GetBulkPublishDetailsRequest.builder().identityPoolId(pool).build()).bulkPublishStatusAsString()
                .equals("SUCCEEDED"));
        Support.refused("another bulk publish", AlreadyStreamedException.class, () -> developer.bulkPublish(bulk));
        Support.refused("a bulk publish by a device", NotAuthorizedException.class, () -> device.bulkPublish(bulk));
        device.unsubscribeFromDataset(UnsubscribeFromDatasetRequest.builder().identityPoolId(pool)
            .identityId(identity).datasetName(dataset).deviceId(id).build());
        Support.check("deleted", device.deleteDataset(DeleteDatasetRequest.builder().identityPoolId(pool)
            .identityId(identity).datasetName(dataset).build()).dataset().datasetName(), dataset);
        Support.refused("what is deleted", ResourceNotFoundException.class, () -> device.describeDataset(one));
    }
}
