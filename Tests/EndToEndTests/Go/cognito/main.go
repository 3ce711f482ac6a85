// AWS' SDK for Go with Amazon Cognito Sync, unchanged except for its endpoint.
package main

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/awserr"
	"github.com/aws/aws-sdk-go/aws/credentials"
	"github.com/aws/aws-sdk-go/aws/session"
	"github.com/aws/aws-sdk-go/service/cognitosync"
	"go-clients/support"
)

func client(user, secret string) *cognitosync.CognitoSync {
	return cognitosync.New(support.Must(session.NewSession(&aws.Config{
		Endpoint: aws.String(support.Environment("REGISTRATION_URL")), Region: aws.String("us-east-1"),
		Credentials: credentials.NewStaticCredentials(user, secret, ""), MaxRetries: aws.Int(0),
	})))
}

func fails(what, code string, err error) {
	var known awserr.Error
	if !errors.As(err, &known) {
		support.Check(what+": it fails", err, code)
		return
	}
	support.Check(what+": its code", known.Code(), code)
}

// Calls all seventeen operations.
func operations() {
	app := support.Environment("APP_ID")
	device := client(app, support.Environment("APP_KEY"))
	developer := client(app+":master", support.Environment("MASTER_KEY"))
	pool := aws.String(support.Environment("POOL"))
	identity, dataset := aws.String("us-east-1:"+support.Random(4)+"-0000-4000-8000-"+support.Random(6)),
		aws.String("no.te:s")
	arns := aws.StringSlice([]string{"arn:aws:sns:us-east-1:123456789012:app/GCM/shop"})
	token := support.Random(32)

	register := &cognitosync.RegisterDeviceInput{
		IdentityPoolId: pool, IdentityId: identity, Platform: aws.String("GCM"), Token: &token,
	}
	_, err := device.RegisterDevice(register)
	fails("a pool without push sync", cognitosync.ErrCodeInvalidConfigurationException, err)
	support.Must(developer.SetIdentityPoolConfiguration(&cognitosync.SetIdentityPoolConfigurationInput{
		IdentityPoolId: pool, PushSync: &cognitosync.PushSync{ApplicationArns: arns},
	}))
	configuration := support.Must(developer.GetIdentityPoolConfiguration(
		&cognitosync.GetIdentityPoolConfigurationInput{IdentityPoolId: pool}))
	support.Check("the configuration", configuration.PushSync.ApplicationArns, arns)
	id := support.Must(device.RegisterDevice(register)).DeviceId
	subscribe := &cognitosync.SubscribeToDatasetInput{
		IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset, DeviceId: id,
	}
	_, err = device.SubscribeToDataset(subscribe)
	fails("a dataset that is not there", cognitosync.ErrCodeResourceNotFoundException, err)

	list := &cognitosync.ListRecordsInput{IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset}
	empty := support.Must(device.ListRecords(list))
	support.Check("no dataset yet", *empty.DatasetExists, false)
	modified := time.UnixMilli(1_411_940_100_123).UTC()
	patch := func(op, key string, value *string, count int64) *cognitosync.RecordPatch {
		return &cognitosync.RecordPatch{
			Op: &op, Key: &key, Value: value, SyncCount: &count, DeviceLastModifiedDate: &modified,
		}
	}
	update := func(device *cognitosync.CognitoSync, token *string, patches ...*cognitosync.RecordPatch) (
		*cognitosync.UpdateRecordsOutput, error) {
		return device.UpdateRecords(&cognitosync.UpdateRecordsInput{
			IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset, SyncSessionToken: token,
			ClientContext: aws.String("context"), RecordPatches: patches,
		})
	}
	saved := support.Must(update(device, empty.SyncSessionToken,
		patch("replace", "a/ž", aws.String("🐎 <&>"), 0), patch("remove", "gone", nil, 0)))
	support.Check("records of an update", len(saved.Records), 2)
	support.Check("the device's time", saved.Records[0].DeviceLastModifiedDate.UTC(), modified)
	support.Must(device.SubscribeToDataset(subscribe))
	list.LastSyncCount, list.MaxResults = aws.Int64(0), aws.Int64(1)
	page := support.Must(device.ListRecords(list))
	support.Check("a page", []string{*page.Records[0].Key, *page.Records[0].Value}, []string{"a/ž", "🐎 <&>"})
	list.NextToken, list.LastSyncCount, list.MaxResults = page.NextToken, nil, nil
	next := support.Must(device.ListRecords(list))
	support.Check("the next page", []any{len(next.Records), *next.Records[0].Key}, []any{1, "gone"})

	// A second device of the same identity changes a record; the first one is notified.
	list.NextToken = nil
	other := support.Must(device.ListRecords(list)).SyncSessionToken
	support.Must(update(device, other, patch("replace", "a/ž", aws.String("changed"), 1)))
	support.Told(token)
	_, err = update(device, other, patch("replace", "a/ž", aws.String("late"), 1))
	fails("a stale count", cognitosync.ErrCodeResourceConflictException, err)
	_, err = update(device, aws.String("x"))
	fails("an invalid session token", cognitosync.ErrCodeInvalidParameterException, err)

	described := support.Must(device.DescribeDataset(&cognitosync.DescribeDatasetInput{
		IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset,
	})).Dataset
	support.Check("its records", *described.NumRecords, int64(1))
	support.Check("its time", described.LastModifiedDate.After(modified), true)
	datasets := support.Must(device.ListDatasets(&cognitosync.ListDatasetsInput{
		IdentityPoolId: pool, IdentityId: identity, MaxResults: aws.Int64(64),
	}))
	support.Check("datasets", []any{len(datasets.Datasets), *datasets.Datasets[0].DatasetName}, []any{1, "no.te:s"})
	usage := support.Must(device.DescribeIdentityUsage(&cognitosync.DescribeIdentityUsageInput{
		IdentityPoolId: pool, IdentityId: identity,
	}))
	support.Check("the identity's usage", *usage.IdentityUsage.DatasetCount, int64(1))
	poolUsage := support.Must(developer.DescribeIdentityPoolUsage(
		&cognitosync.DescribeIdentityPoolUsageInput{IdentityPoolId: pool}))
	support.Check("the pool's usage", *poolUsage.IdentityPoolUsage.DataStorage > 0, true)
	pools := support.Must(developer.ListIdentityPoolUsage(&cognitosync.ListIdentityPoolUsageInput{}))
	support.Check("pools", *pools.Count, int64(1))
	support.Must(developer.SetCognitoEvents(&cognitosync.SetCognitoEventsInput{
		IdentityPoolId: pool, Events: map[string]*string{"SyncTrigger": aws.String("")},
	}))
	events := support.Must(developer.GetCognitoEvents(&cognitosync.GetCognitoEventsInput{IdentityPoolId: pool}))
	support.Check("events", len(events.Events), 0)
	bulk := &cognitosync.BulkPublishInput{IdentityPoolId: pool}
	support.Must(developer.BulkPublish(bulk))
	support.Until("the bulk publish", func() bool {
		details := support.Must(developer.GetBulkPublishDetails(
			&cognitosync.GetBulkPublishDetailsInput{IdentityPoolId: pool}))
		return *details.BulkPublishStatus == cognitosync.BulkPublishStatusSucceeded
	})
	_, err = developer.BulkPublish(bulk)
	fails("another bulk publish", cognitosync.ErrCodeAlreadyStreamedException, err)
	_, err = device.BulkPublish(bulk)
	fails("a bulk publish by a device", cognitosync.ErrCodeNotAuthorizedException, err)
	support.Must(device.UnsubscribeFromDataset(&cognitosync.UnsubscribeFromDatasetInput{
		IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset, DeviceId: id,
	}))
	deleted := support.Must(device.DeleteDataset(&cognitosync.DeleteDatasetInput{
		IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset,
	}))
	support.Check("deleted", *deleted.Dataset.DatasetName, "no.te:s")
	_, err = device.DescribeDataset(&cognitosync.DescribeDatasetInput{
		IdentityPoolId: pool, IdentityId: identity, DatasetName: dataset,
	})
	fails("what is deleted", cognitosync.ErrCodeResourceNotFoundException, err)
}

func main() {
	support.Main(map[string]func(){"operations": operations})
}
