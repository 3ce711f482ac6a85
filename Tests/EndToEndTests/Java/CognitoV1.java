import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.ClientConfiguration;
import com.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.amazonaws.services.cognitosync.AmazonCognitoSync;
import com.amazonaws.services.cognitosync.AmazonCognitoSyncClientBuilder;
import com.amazonaws.services.cognitosync.model.*;
import java.util.Date;
import java.util.List;
import java.util.Map;

/** AWS' SDK 1 for Java with Amazon Cognito Sync, unchanged except for its endpoint. */
final class CognitoV1 {
    public static void main(String[] arguments) {
        Support.main(arguments, Map.of("operations", CognitoV1::operations));
    }

    private static AmazonCognitoSync client(String user, String secret) {
        return AmazonCognitoSyncClientBuilder.standard()
            .withEndpointConfiguration(
            new EndpointConfiguration(Support.environment("REGISTRATION_URL"), "us-east-1"))
            .withCredentials(new AWSStaticCredentialsProvider(new BasicAWSCredentials(user, secret)))
            .withClientConfiguration(new ClientConfiguration().withMaxErrorRetry(0)).build();
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

        var register = new RegisterDeviceRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withPlatform("GCM").withToken(token);
        Support.refused("a pool without push sync", InvalidConfigurationException.class,
            () -> device.registerDevice(register));
        developer.setIdentityPoolConfiguration(new SetIdentityPoolConfigurationRequest().withIdentityPoolId(pool)
            .withPushSync(new PushSync().withApplicationArns(applications)));
        Support.check("the configuration", developer.getIdentityPoolConfiguration(
            new GetIdentityPoolConfigurationRequest().withIdentityPoolId(pool)).getPushSync()
                .getApplicationArns(), applications);
        String id = device.registerDevice(register).getDeviceId();
        var subscribe = new SubscribeToDatasetRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withDatasetName(dataset).withDeviceId(id);
        Support.refused("a dataset that is not there", ResourceNotFoundException.class,
            () -> device.subscribeToDataset(subscribe));

        var list = new ListRecordsRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withDatasetName(dataset);
        var empty = device.listRecords(list);
        Support.check("no dataset yet", empty.isDatasetExists(), false);
        Date modified = new Date(1_411_940_100_123L);
        var patch = new RecordPatch().withOp("replace").withKey("a/ключ 🐎/?&").withValue("é🔔 <&>")
            .withSyncCount(0L).withDeviceLastModifiedDate(modified);
        var removal = new RecordPatch().withOp("remove").withKey("gone").withSyncCount(0L);
        var saved = device.updateRecords(new UpdateRecordsRequest().withIdentityPoolId(pool)
            .withIdentityId(identity).withDatasetName(dataset).withSyncSessionToken(empty.getSyncSessionToken())
            .withRecordPatches(List.of(patch, removal)).withClientContext("{\"client\":\"context\"}"));
        Support.check("records of an update", saved.getRecords().size(), 2);
        Support.check("the device's time", saved.getRecords().get(0).getDeviceLastModifiedDate(), modified);
        device.subscribeToDataset(subscribe);
        var page = device.listRecords(new ListRecordsRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withDatasetName(dataset).withLastSyncCount(0L).withMaxResults(1));
        Support.check("a page", page.getRecords().get(0).getValue(), "é🔔 <&>");
        var next = device.listRecords(new ListRecordsRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withDatasetName(dataset).withNextToken(page.getNextToken()));
        Support.check("the next page", next.getRecords().get(0).getKey(), "gone");

        // The other device of the same identity changes a record; this one is notified.
        String session = device.listRecords(list).getSyncSessionToken();
        var change = new UpdateRecordsRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withDatasetName(dataset).withSyncSessionToken(session).withRecordPatches(List.of(new RecordPatch()
            .withOp("replace").withKey("a/ключ 🐎/?&").withValue("changed").withSyncCount(1L)));
        device.updateRecords(change);
        Support.told(token);
        Support.refused("a stale count", ResourceConflictException.class, () -> device.updateRecords(change));
        Support.refused("an invalid session token", InvalidParameterException.class, () -> device.updateRecords(
            new UpdateRecordsRequest().withIdentityPoolId(pool).withIdentityId(identity).withDatasetName(dataset)
                .withSyncSessionToken("x")));

        var one = new DescribeDatasetRequest().withIdentityPoolId(pool).withIdentityId(identity)
            .withDatasetName(dataset);
        var described = device.describeDataset(one).getDataset();
        Support.check("its records", described.getNumRecords(), 1L);
        Support.check("its time", described.getLastModifiedDate().after(modified), true);
        Support.check("datasets", device.listDatasets(new ListDatasetsRequest().withIdentityPoolId(pool)
            .withIdentityId(identity).withMaxResults(64)).getDatasets().get(0).getDatasetName(), dataset);
        Support.check("the identity's usage", device.describeIdentityUsage(
            new DescribeIdentityUsageRequest().withIdentityPoolId(pool).withIdentityId(identity))
                .getIdentityUsage().getDatasetCount(), 1);
        Support.check("the pool's usage", developer.describeIdentityPoolUsage(
            new DescribeIdentityPoolUsageRequest().withIdentityPoolId(pool)).getIdentityPoolUsage()
                .getDataStorage() > 0, true);
        Support.check("pools", developer.listIdentityPoolUsage(new ListIdentityPoolUsageRequest()).getCount(), 1);
        developer.setCognitoEvents(new SetCognitoEventsRequest().withIdentityPoolId(pool)
            .withEvents(Map.of("SyncTrigger", "")));
        Support.check("events", developer.getCognitoEvents(new GetCognitoEventsRequest()
            .withIdentityPoolId(pool)).getEvents(), Map.of());
        var bulk = new BulkPublishRequest().withIdentityPoolId(pool);
        developer.bulkPublish(bulk);
        Support.until("the bulk publish", () -> developer.getBulkPublishDetails(
            new GetBulkPublishDetailsRequest().withIdentityPoolId(pool)).getBulkPublishStatus().equals("SUCCEEDED"));
        Support.refused("another bulk publish", AlreadyStreamedException.class, () -> developer.bulkPublish(bulk));
        Support.refused("a bulk publish by a device", NotAuthorizedException.class, () -> device.bulkPublish(bulk));
        device.unsubscribeFromDataset(new UnsubscribeFromDatasetRequest().withIdentityPoolId(pool)
            .withIdentityId(identity).withDatasetName(dataset).withDeviceId(id));
        Support.check("deleted", device.deleteDataset(new DeleteDatasetRequest().withIdentityPoolId(pool)
            .withIdentityId(identity).withDatasetName(dataset)).getDataset().getDatasetName(), dataset);
        Support.refused("what is deleted", ResourceNotFoundException.class, () -> device.describeDataset(one));
    }
}
