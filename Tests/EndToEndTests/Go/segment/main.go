// Segment's Go client, unchanged except for its address.
package main

import (
	"time"

	analytics "github.com/segmentio/analytics-go/v3"
	"go-clients/support"
)

// The client's answers for each message, by its id.
type answers struct {
	taken, failed chan string
}

func (all answers) Success(message analytics.Message)          { all.taken <- id(message) }
func (all answers) Failure(message analytics.Message, _ error) { all.failed <- id(message) }

func id(message analytics.Message) string {
	switch message := message.(type) {
	case analytics.Track:
		return message.MessageId
	case analytics.Identify:
		return message.MessageId
	case analytics.Group:
		return message.MessageId
	case analytics.Page:
		return message.MessageId
	case analytics.Screen:
		return message.MessageId
	case analytics.Alias:
		return message.MessageId
	}
	return "unknown"
}

// Sends every kind of message, 300 tracks among them, and waits for the client's answers.
func calls() {
	all := answers{make(chan string, 1000), make(chan string, 1000)}
	client := support.Must(analytics.NewWithConfig(support.Environment("APP_KEY"), analytics.Config{
		Endpoint: support.Environment("INGEST_URL"), Callback: all,
		Interval: 100 * time.Millisecond, BatchSize: 50,
	}))
	count := 0
	told := func(kind string, id string, message analytics.Message) {
		support.Check(kind+" is queued", client.Enqueue(message), nil)
		support.Sent("Segment"+kind, id)
		count++
	}
	newID := func() string {
		random := support.Random(16)
		return random[:8] + "-" + random[8:12] + "-4" + random[13:16] + "-8" + random[17:20] + "-" + random[20:]
	}
	user, when := "user-"+support.Random(8), time.Date(2024, 2, 29, 12, 0, 0, 123456789, time.UTC)
	for number := 0; number < 300; number++ {
		id := newID()
		told("Track", id, analytics.Track{
			MessageId: id, UserId: user, Event: "Reading é🔔", Timestamp: when,
			Properties: analytics.NewProperties().Set("number", number).Set("value", 66.7).Set("none", nil),
			Context:    &analytics.Context{Locale: "de-CH", Extra: map[string]any{"own": true}},
		})
	}
	id := newID()
	told("Identify", id, analytics.Identify{
		MessageId: id, UserId: user, Traits: analytics.NewTraits().SetEmail("ann@example.com"),
		Integrations: analytics.NewIntegrations().EnableAll().Disable("Example"),
	})
	id = newID()
	told("Group", id, analytics.Group{MessageId: id, UserId: user, GroupId: "a-group"})
	id = newID()
	told("Page", id, analytics.Page{
		MessageId: id, UserId: user, Name: "Start",
		Properties: analytics.NewProperties().SetURL("https://example.com/"),
	})
	id = newID()
	told("Screen", id, analytics.Screen{MessageId: id, AnonymousId: "nobody", Name: "Start"})
	id = newID()
	told("Alias", id, analytics.Alias{MessageId: id, UserId: user, PreviousId: "an-old-name"})
	// Its own ids are UUIDs, and known only to the client.
	for number := 0; number < 20; number++ {
		told("Track", "*", analytics.Track{UserId: user, Event: "With an id of its own"})
	}
	support.Check("it closes", client.Close(), nil)
	support.Check("messages that failed", len(all.failed), 0)
	support.Check("messages that were taken", len(all.taken), count)
}

func main() {
	support.Main(map[string]func(){"calls": calls})
}
