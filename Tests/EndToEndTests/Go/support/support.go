// Package support has the shared parts of the programs: checks, scenarios, and the report of a run.
package support

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"
)

var (
	lock              sync.Mutex
	checked, problems int
)

// Environment reads a variable that the caller sets.
func Environment(name string) string {
	value, isSet := os.LookupEnv(name)
	if !isSet {
		Fail("the environment", fmt.Errorf("%s is not set", name))
		end()
	}
	return value
}

// Check compares two values; a difference is a line on standard error and the exit status 1.
func Check(what string, got, wanted any) {
	lock.Lock()
	defer lock.Unlock()
	checked++
	if reflect.DeepEqual(got, wanted) {
		return
	}
	problems++
	fmt.Fprintf(os.Stderr, "%s: got %#v, wanted %#v\n", what, got, wanted)
}

// Must ends the program if an error prevents the rest of it.
func Must[Value any](value Value, err error) Value {
	if err != nil {
		Fail("the scenario ended early", err)
		end()
	}
	return value
}

// Fail records an error.
func Fail(what string, err error) {
	lock.Lock()
	defer lock.Unlock()
	problems++
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
}

// Sent prints an object that must be stored once; "*" is an id that only the service knows.
func Sent(kind, id string) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Println("sent", kind, id)
}

// Told prints the token of a device that must get one silent push.
func Told(token string) {
	fmt.Println("told", token)
}

// Random returns this many random bytes as hexadecimal digits.
func Random(count int) string {
	random := make([]byte, count)
	Must(rand.Read(random))
	return hex.EncodeToString(random)
}

// JSON returns a value's JSON text.
func JSON(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	Must(0, encoder.Encode(value))
	return string(bytes.TrimSpace(text.Bytes()))
}

// Until polls until the answer is yes, for at most a minute.
func Until(what string, ask func() bool) {
	for deadline := time.Now().Add(time.Minute); !ask(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			Fail(what, fmt.Errorf("not within a minute"))
			end()
		}
	}
}

// Main runs the scenario that the command line names.
func Main(scenarios map[string]func()) {
	run, isKnown := scenarios[os.Args[1]]
	if !isKnown {
		Fail("the command line", fmt.Errorf("unknown scenario %q", os.Args[1]))
		end()
	}
	run()
	end()
}

func end() {
	fmt.Printf("{\"checked\":%d,\"problems\":%d}\n", checked, problems)
	if problems > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}
