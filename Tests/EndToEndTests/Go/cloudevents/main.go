// CloudEvents' Go SDK, over HTTP and to Kafka, unchanged except for its addresses.
package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"go-clients/support"
)

var reading = map[string]any{
	"deviceId": "WX1278UIT", "temperatureInFahrenheit": 66.7, "windSpeedInMph": 2,
}

// Makes an event of the type WeatherSensor with an id that is the object's.
func event(data any) cloudevents.Event {
	made := cloudevents.NewEvent()
	made.SetID(support.Random(12))
	made.SetSource("/sensors/1278")
	made.SetType("WeatherSensor")
	made.SetSubject(`a "subject", 100 %, é🐎`)
	made.SetTime(time.Date(2025, 12, 31, 23, 0, 0, 123456789, time.UTC))
	made.SetExtension("number", 5)
	made.SetExtension("myext", "v")
	support.Must(0, made.SetData(cloudevents.ApplicationJSON, data))
	return made
}

// Returns the HTTP status of a result, 0 without one.
func status(result error) int {
	var answer *cehttp.Result
	if cloudevents.ResultAs(result, &answer) {
		return answer.StatusCode
	}
	return 0
}

func overHTTP() {
	address := support.Environment("INGEST_URL") + "/events"
	basic := func(request *http.Request) { request.SetBasicAuth(support.Environment("APP_KEY"), "") }
	client := support.Must(cloudevents.NewClientHTTP(
		cloudevents.WithTarget(address), cehttp.WithRoundTripper(signed{basic}),
	))
	encodings := map[string]func(context.Context) context.Context{
		"binary": binding.WithForceBinary, "structured": binding.WithForceStructured,
	}
	for name, encoding := range encodings {
		ctx := encoding(context.Background())
		for number := 0; number < 20; number++ {
			one := event(reading)
			for time := 0; time < 2; time++ {
				result := client.Send(ctx, one)
				support.Check(name+": its status", status(result), http.StatusNoContent)
				support.Check(name+": it is acknowledged", cloudevents.IsACK(result), true)
			}
			support.Sent("WeatherSensor", one.ID())
		}
		result := client.Send(ctx, event(map[string]any{"deviceId": 7}))
		support.Check(name+": what breaks the schema", status(result), http.StatusBadRequest)
		support.Check(name+": it is not acknowledged", cloudevents.IsACK(result), false)
		unknown := event(reading)
		unknown.SetType("Nobody.Declared")
		support.Check(name+": an unknown type", status(client.Send(ctx, unknown)), http.StatusNotFound)
		own := event(reading)
		own.SetID("reading " + name)
		for time := 0; time < 3; time++ {
			support.Check(name+": an id of another form", status(client.Send(ctx, own)), http.StatusNoContent)
		}
		support.Sent("WeatherSensor", "*")
		text := event(reading)
		support.Must(0, text.SetData(cloudevents.TextPlain, "plain"))
		support.Check(name+": a bare text", status(client.Send(ctx, text)), http.StatusBadRequest)
	}
	one := event(reading)
	answer, result := client.Request(context.Background(), one)
	support.Check("a request: its status", status(result), http.StatusNoContent)
	support.Check("a request: no event answers", answer == nil, true)
	support.Sent("WeatherSensor", one.ID())

	many := make([]cloudevents.Event, 100)
	for index := range many {
		many[index] = event(reading)
	}
	for time := 0; time < 2; time++ {
		request := support.Must(cehttp.NewHTTPRequestFromEvents(context.Background(), address, many))
		basic(request)
		answer := support.Must(http.DefaultClient.Do(request))
		body := support.Must(io.ReadAll(answer.Body))
		support.Check("a batch", []any{answer.StatusCode, string(body)}, []any{http.StatusNoContent, ""})
	}
	for _, one := range many {
		support.Sent("WeatherSensor", one.ID())
	}
}

// Adds the app's key to each request.
type signed struct {
	sign func(*http.Request)
}

func (transport signed) RoundTrip(request *http.Request) (*http.Response, error) {
	copied := request.Clone(request.Context())
	transport.sign(copied)
	return http.DefaultTransport.RoundTrip(copied)
}

// Writes push requests to Kafka, in both modes.
func toKafka() {
	configuration := sarama.NewConfig()
	configuration.Version = sarama.V2_8_0_0
	// Its sender waits for each record.
	configuration.Producer.Return.Successes = true
	sender := support.Must(kafka_sarama.NewSender(
		[]string{support.Environment("KAFKA")}, configuration, support.Environment("TOPIC"),
	))
	defer sender.Close(context.Background())
	client := support.Must(cloudevents.NewClient(sender))
	for _, mode := range []string{"binary", "structured"} {
		encoding := binding.WithForceBinary
		if mode == "structured" {
			encoding = binding.WithForceStructured
		}
		push := cloudevents.NewEvent()
		push.SetID(mode + "-" + support.Environment("EVENT"))
		push.SetSource("/shop/%C3%B6")
		push.SetType("com.example.push")
		push.SetTime(time.Date(2025, 12, 31, 23, 0, 0, 123456789, time.UTC))
		var request any
		support.Must(0, json.Unmarshal([]byte(support.Environment("REQUEST")), &request))
		support.Must(0, push.SetData(cloudevents.ApplicationJSON, request))
		ctx := kafka_sarama.WithMessageKey(encoding(context.Background()), sarama.StringEncoder(push.ID()))
		result := client.Send(ctx, push)
		support.Check(mode+": it is written", result, nil)
	}
}

func main() {
	support.Main(map[string]func(){"HTTP": overHTTP, "Kafka": toKafka})
}
