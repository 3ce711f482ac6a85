// Amazon Cognito Sync by AWS' own packages for JavaScript, unchanged except for their endpoint.
//
// usage: cognito.mjs PACKAGE

import { randomUUID } from "node:crypto";
import { check, environment, main, token, until, vendor } from "./support.mjs";

const endpoint = environment.REGISTRATION_URL;
const region = "us-east-1";
const pool = { IdentityPoolId: environment.POOL };
const applications = ["arn:aws:sns:us-east-1:123456789012:app/GCM/shop"];
const mine = { accessKeyId: environment.APP_ID, secretAccessKey: environment.APP_KEY };
const developers = {
  accessKeyId: environment.APP_ID + ":master", secretAccessKey: environment.MASTER_KEY,
};

/// Calls all seventeen operations through `ask(credentials, operation, input)`, which returns the
/// response, and throws an error whose `name` is the modelled one.
async function operations(ask) {
  const owner = { ...pool, IdentityId: "us-east-1:" + randomUUID() };
  const dataset = { ...owner, DatasetName: "no.te:s" };
  const client = (operation, input) => ask(mine, operation, input);
  const developer = (operation, input = pool) => ask(developers, operation, input);
  const fails = async (name, call) => {
    let got = "nothing";
    try {
      await call();
    } catch (error) {
      got = error.name;
    }
    check("it fails", got, name);
  };

  await fails("InvalidConfigurationException", () =>
    client("RegisterDevice", { ...owner, Platform: "GCM", Token: token() }));
  const PushSync = { ApplicationArns: applications };
  await developer("SetIdentityPoolConfiguration", { ...pool, PushSync });
  const configuration = await developer("GetIdentityPoolConfiguration");
  check("the configuration", configuration.PushSync.ApplicationArns, applications);
  const { DeviceId } = await client("RegisterDevice", { ...owner, Platform: "GCM", Token: token() });
  await fails("ResourceNotFoundException", () => client("SubscribeToDataset", { ...dataset, DeviceId }));

  const empty = await client("ListRecords", dataset);
  check("nothing yet", [empty.DatasetExists, empty.Records], [false, []]);
  const { SyncSessionToken } = empty;
  const DeviceLastModifiedDate = new Date(1_700_000_000_123);
  const save = (...RecordPatches) =>
    client("UpdateRecords", { ...dataset, SyncSessionToken, RecordPatches, DeviceId });
  const saved = await save(
    { Op: "replace", Key: "a/b", Value: "é🔔", SyncCount: 0, DeviceLastModifiedDate },
    { Op: "remove", Key: "gone", Value: "", SyncCount: 0 },
  );
  check("counts", saved.Records.map((record) => record.SyncCount), [1, 1]);
  check("the device's time", +saved.Records[0].DeviceLastModifiedDate, +DeviceLastModifiedDate);
  await client("SubscribeToDataset", { ...dataset, DeviceId });
  const page = await client("ListRecords", { ...dataset, LastSyncCount: 0, MaxResults: 1 });
  check("a page", [page.Records[0].Key, page.Records[0].Value, page.Count], ["a/b", "é🔔", 1]);
  const next = await client("ListRecords", { ...dataset, NextToken: page.NextToken });
  check("the next", next.Records.map((record) => [record.Key, record.Value]), [["gone", undefined]]);
  await fails("ResourceConflictException", () =>
    save({ Op: "replace", Key: "a/b", Value: "1", SyncCount: 0 }));
  await fails("InvalidParameterException", () =>
    client("UpdateRecords", { ...dataset, SyncSessionToken: "x", RecordPatches: [] }));
  const many = Array.from({ length: 1024 }, (_, number) => ({
    Op: "replace", Key: "k" + number, Value: "", SyncCount: 0 }));
  await fails("LimitExceededException", () => save(...many));

  const { Dataset } = await client("DescribeDataset", dataset);
  check("the dataset", [Dataset.NumRecords, Dataset.LastModifiedBy], [1, DeviceId]);
  check("its time", Dataset.LastModifiedDate instanceof Date && +Dataset.LastModifiedDate > 1.7e12);
  check("datasets", (await client("ListDatasets", owner)).Datasets.map((one) => one.DatasetName), ["no.te:s"]);
  check("usage", (await client("DescribeIdentityUsage", owner)).IdentityUsage.DatasetCount, 1);
  check("the pool's", (await developer("DescribeIdentityPoolUsage")).IdentityPoolUsage.DataStorage > 0);
  check("pools", (await developer("ListIdentityPoolUsage", {})).Count, 1);
  check("events", (await developer("GetCognitoEvents")).Events, {});
  await developer("SetCognitoEvents", { ...pool, Events: { SyncTrigger: "" } });
  await developer("BulkPublish");
  await until("the bulk publish", async () => {
    const { BulkPublishStatus } = await developer("GetBulkPublishDetails");
    return BulkPublishStatus === "SUCCEEDED" ? true : undefined;
  });
  await fails("AlreadyStreamedException", () => developer("BulkPublish"));
  await fails("NotAuthorizedException", () => client("BulkPublish", pool));
  await client("UnsubscribeFromDataset", { ...dataset, DeviceId });
  check("deleted", (await client("DeleteDataset", dataset)).Dataset.DatasetName, "no.te:s");
  await fails("ResourceNotFoundException", () => client("DescribeDataset", dataset));
}

async function version3() {
  const sdk = vendor("@aws-sdk/client-cognito-sync");
  await operations(async (credentials, operation, input) => {
    const client = new sdk.CognitoSyncClient({ endpoint, region, credentials, maxAttempts: 1 });
    try {
      return await client.send(new sdk[operation + "Command"](input));
    } catch (error) {
      check(operation + ": its class", error instanceof (sdk[error.name] ?? Date));
      throw error;
    }
  });
}

async function version2() {
  process.env.AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE = "1";
  const AWS = vendor("aws-sdk");
  await operations(async (credentials, operation, input) => {
    const client = new AWS.CognitoSync({ endpoint, region, ...credentials, maxRetries: 0 });
    const method = operation[0].toLowerCase() + operation.slice(1);
    try {
      return await client[method](input).promise();
    } catch (error) {
      error.name = error.code;
      throw error;
    }
  });
}

/// Two devices of one identity, each with a store of its own.
async function manager() {
  process.env.AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE = "1";
  const AWS = vendor("aws-sdk");
  globalThis.AWS = AWS;
  globalThis.window = globalThis;
  vendor("amazon-cognito-js");
  const identityId = "us-east-1:" + randomUUID();
  AWS.config.update({ region, cognitosync: { endpoint }, maxRetries: 0 });
  AWS.config.credentials = Object.assign(new AWS.Credentials(mine), {
    params: pool, identityId });
  const open = () => new Promise((resolve, reject) => {
    const client = new AWS.CognitoSyncManager({
      DataStore: AWS.CognitoSyncManager.StoreInMemory });
    client.openOrCreateDataset("notes", (error, dataset) => error ? reject(error) : resolve(dataset));
  });
  const call = (dataset, method, ...values) => new Promise((resolve, reject) => {
    dataset[method](...values, (error, value) => error ? reject(error) : resolve(value));
  });
  const synchronize = (dataset, solve) => new Promise((resolve, reject) => {
    dataset.synchronize({
      onSuccess: () => resolve(), onFailure: reject,
      onConflict: (set, conflicts, callback) => {
        set.resolve(conflicts.map((one) => one[solve]()), () => callback(true));
      },
      onDatasetDeleted: (_, __, callback) => callback(false),
      onDatasetMerged: (_, __, callback) => callback(false),
    });
  });
  const [phone, tablet] = [await open(), await open()];
  await call(phone, "put", "milk", "1 pint");
  await call(phone, "put", "empty", "");
  await synchronize(phone);
  await synchronize(tablet);
  check("what the phone saved", await call(tablet, "get", "milk"), "1 pint");
  await call(tablet, "put", "milk", "2 pints");
  await synchronize(tablet);
  await call(phone, "put", "milk", "3 pints");
  await synchronize(phone, "resolveWithLocalRecord");
  await synchronize(tablet);
  check("the phone's won", await call(tablet, "get", "milk"), "3 pints");
  await call(tablet, "remove", "milk");
  await synchronize(tablet);
  await synchronize(phone);
  check("and is gone", (await call(phone, "get", "milk")) || undefined, undefined);
}

await main({
  "@aws-sdk/client-cognito-sync": version3, "aws-sdk": version2, "amazon-cognito-js": manager,
});
