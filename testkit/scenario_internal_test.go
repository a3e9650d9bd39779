package testkit

import (
	"fmt"
	"strings"
	"testing"
)

// fails is a test whose failures are panics.
type fails struct {
	testing.TB
	cleanups []func()
}

func (f *fails) Helper()                           {}
func (f *fails) Failed() bool                      { return true }
func (f *fails) Logf(string, ...any)               {}
func (f *fails) Cleanup(fn func())                 { f.cleanups = append(f.cleanups, fn) }
func (f *fails) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A scenario that is wrong says where, and one that does not hold says so in a sentence.
func TestScenarios_SayWhereTheyAreWrong(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"  indented":                         "x.txt:1: an indented line belongs to a command",
		"worker w1\n----\n":                  "x.txt:2: what is before ---- does not print",
		"dance":                              "x.txt:1: dance: there is no such command; there are: advance agent",
		"worker w1 does=dance":               "there is no move dance; there are: slow:D busy",
		"expect r1 succeeds":                 "x.txt:1: expect r1 succeeds: no run r1 was submitted",
		"advance soon":                       "want a duration, such as 90s",
		"refused no_space worker w1":         "it was not refused",
		"worker w1 speaks=99":                "it fails: protocol versions do not meet",
		"do w1 succeed":                      "no worker w1 has enrolled",
		"worker w1\noptions grace=9s":        "x.txt:2: options grace=9s: options come first",
		"worker w1\nexpect worker w1 runs 1": "x.txt:2: expect worker w1 runs 1: testkit: expected worker w1 to run 1 dispatches",
		"# nothing":                          "there is no command that does anything",
	}
	for source, want := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			Bubble(t, func(t *testing.T) {
				f := &fails{}
				defer func() {
					if said, _ := recover().(string); !strings.Contains(said, want) {
						t.Errorf("it says %q, want %q", said, want)
					}
					for _, fn := range f.cleanups {
						fn()
					}
				}()
				commands, err := parseScenario(source)
				if err != nil {
					panic("x.txt:" + err.Error())
				}
				playAll(f, "x.txt", commands)
			})
		})
	}
}
