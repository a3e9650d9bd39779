package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	const pass = `{"Action":"run","Package":"github.com/swampd/swampd/worker","Test":"TestA"}
{"Action":"output","Package":"github.com/swampd/swampd/worker","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"github.com/swampd/swampd/worker","Test":"TestA"}
{"Action":"output","Package":"github.com/swampd/swampd/worker","Output":"PASS\n"}
{"Action":"output","Package":"github.com/swampd/swampd/worker","Output":"ok  \tgithub.com/swampd/swampd/worker\t0.1s\n"}
{"Action":"pass","Package":"github.com/swampd/swampd/worker"}
`
	const skip = `{"Action":"output","Package":"github.com/swampd/swampd/worker","Test":"TestB/sub","Output":"no room\n"}
{"Action":"skip","Package":"github.com/swampd/swampd/worker","Test":"TestB/sub"}
`
	tests := []struct {
		name    string
		allow   string
		events  string
		wantOut string
		wantErr string
	}{
		{
			name:    "go test's own line is shown and the output of a passed test is not",
			events:  pass,
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\n1 passed, 0 failed, 0 skipped\n",
		},
		{
			name:    "a skip that nobody allowed fails and says which",
			events:  pass + skip,
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\nno room\n1 passed, 0 failed, 1 skipped\n",
			wantErr: "worker TestB/sub was skipped: let it run, or list it with the reason",
		},
		{
			name:    "an allowed skip passes",
			allow:   "# a comment\n\nworker TestB/sub needs room\n",
			events:  pass + skip,
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\n1 passed, 0 failed, 1 skipped\n",
		},
		{
			name:    "an allowance of one test does not reach to another package",
			allow:   "gateway TestB/sub needs room\n",
			events:  pass + skip,
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\nno room\n1 passed, 0 failed, 1 skipped\n",
			wantErr: "worker TestB/sub was skipped: let it run, or list it with the reason",
		},
		{
			name:    "a package without test files is no skipped test",
			events:  pass + `{"Action":"skip","Package":"github.com/swampd/swampd/cmd/swampd"}` + "\n",
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\n1 passed, 0 failed, 0 skipped\n",
		},
		{
			name: "a failed test shows its output and is counted",
			events: pass + `{"Action":"output","Package":"p","Test":"TestC","Output":"got 1\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
`,
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\ngot 1\n1 passed, 1 failed, 0 skipped\n",
			wantErr: "1 tests failed",
		},
		{
			name:    "a test that was cut off shows its output and fails",
			events:  pass + `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: oh\n"}` + "\n",
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\npanic: oh\n1 passed, 0 failed, 0 skipped\n",
			wantErr: "1 tests did not end",
		},
		{
			name:    "a build error is shown",
			events:  pass + `{"ImportPath":"p","Action":"build-output","Output":"p/x.go:1: bad\n"}` + "\n",
			wantOut: "ok  \tgithub.com/swampd/swampd/worker\t0.1s\np/x.go:1: bad\n1 passed, 0 failed, 0 skipped\n",
		},
		{
			name:    "a run without any test fails",
			events:  "go: no packages\n",
			wantOut: "go: no packages\n0 passed, 0 failed, 0 skipped\n",
			wantErr: "no test passed: is the pattern right?",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			allowed, err := parseSkips(strings.NewReader(tt.allow))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			r := newReport(&out, allowed)
			if err := r.read(strings.NewReader(tt.events)); err != nil {
				t.Fatal(err)
			}
			gotErr := ""
			if err := r.finish(); err != nil {
				gotErr = err.Error()
			}
			if out.String() != tt.wantOut {
				t.Errorf("output\n%q\nwant\n%q", out.String(), tt.wantOut)
			}
			if gotErr != tt.wantErr {
				t.Errorf("error %q, want %q", gotErr, tt.wantErr)
			}
		})
	}
}

func TestParseSkips_WithoutReasonIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := parseSkips(strings.NewReader("worker TestB\n")); err == nil {
		t.Error("a skip without a reason was taken")
	}
}
