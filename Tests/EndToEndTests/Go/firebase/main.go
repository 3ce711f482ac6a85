// Firebase's Admin SDK for Go: it reads and evaluates server templates. Its address is a constant,
// so its HTTP client redirects the requests here.
package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	firebase "firebase.google.com/go/v4"
	"firebase.google.com/go/v4/remoteconfig"
	"go-clients/support"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
)

// Redirects requests for Firebase's host to another one, with a token.
type moved struct {
	base   *url.URL
	bearer string
}

func (transport moved) RoundTrip(request *http.Request) (*http.Response, error) {
	copied := request.Clone(request.Context())
	copied.URL.Scheme, copied.URL.Host, copied.Host = transport.base.Scheme, transport.base.Host, ""
	copied.Header.Set("Authorization", "Bearer "+transport.bearer)
	return http.DefaultTransport.RoundTrip(copied)
}

func open(token string) *remoteconfig.Client {
	base := support.Must(url.Parse(support.Environment("CONFIG_URL")))
	app := support.Must(firebase.NewApp(context.Background(),
		&firebase.Config{ProjectID: support.Environment("PROJECT")},
		option.WithHTTPClient(&http.Client{Transport: moved{base, token}}),
		option.WithTokenSource(oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})),
	))
	return support.Must(app.RemoteConfig(context.Background()))
}

func server() {
	client := open(support.Environment("TOKEN"))
	template := support.Must(client.GetServerTemplate(context.Background(), map[string]any{
		"greeting": "none", "absent": 7,
	}))
	plain := support.Must(template.Evaluate(nil))
	support.Check("the default", plain.GetInt("limit"), 10)
	support.Check("a text", plain.GetString("greeting"), "hello")
	support.Check("the app's own default", plain.GetInt("absent"), 7)
	support.Check("a value's source", plain.GetValueSource("greeting"), remoteconfig.Remote)
	gold := support.Must(template.Evaluate(map[string]any{"tier": "gold", "randomizationID": "one"}))
	support.Check("a custom signal", gold.GetInt("limit"), 100)
	support.Check("everybody", gold.GetBoolean("everybody"), true)
	vip := support.Must(template.Evaluate(map[string]any{"tier": "vip", "randomizationID": "one"}))
	support.Check("an expression", vip.GetInt("limit"), 200)
	text := support.Must(template.ToJSON())
	support.Check("it can be stored", strings.Contains(text, "STRING_EXACTLY_MATCHES"), true)
	again := support.Must(client.InitServerTemplate(nil, text))
	stored := support.Must(again.Evaluate(map[string]any{"tier": "gold"}))
	support.Check("and read again", stored.GetInt("limit"), 100)
	_, err := open("nobody").GetServerTemplate(context.Background(), nil)
	support.Check("an unknown token is refused", err != nil, true)
}

func main() {
	support.Main(map[string]func(){"server": server})
}
