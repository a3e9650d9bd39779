package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const module = "github.com/swampd/swampd"

// event is one line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test names one test or subtest.
type test struct{ pkg, name string }

// skips maps the tests that may be skipped to the reason why.
type skips map[test]string

// parseSkips reads the list of allowed skips: package folder, test, reason. Lines that start with # are comments.
func parseSkips(r io.Reader) (skips, error) {
	allowed := skips{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %d: want a package, a test and a reason, got %q", n, line)
		}
		allowed[test{fields[0], fields[1]}] = strings.Join(fields[2:], " ")
	}
	return allowed, lines.Err()
}

// report collects events and prints what a plain `go test` would print.
type report struct {
	out     io.Writer
	allowed skips
	output  map[test]*strings.Builder // of each test that has not ended
	refused []test                    // skipped, and not allowed to be
	passed  int
	failed  int
	skipped int
}

func newReport(out io.Writer, allowed skips) *report {
	return &report{out: out, allowed: allowed, output: map[test]*strings.Builder{}}
}

// read takes events until the end of in. A line that is no event is printed as it is: go prints some errors plainly.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(r.out, "%s", line)
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events: %w", err)
		}
	}
}

func (r *report) take(e event) {
	t := test{strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/"), e.Test}
	switch e.Action {
	case "output":
		r.print(t, e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "fail", "skip":
		if t.name != "" { // a package without test files is "skipped" too; only tests count
			r.end(t, e.Action)
		}
	}
}

// print shows the output of a package at once, as it says how the package did, and keeps that of a test until it is
// known whether somebody has to read it.
func (r *report) print(t test, text string) {
	if t.name == "" {
		if text != "PASS\n" {
			fmt.Fprint(r.out, text)
		}
		return
	}
	if r.output[t] == nil {
		r.output[t] = &strings.Builder{}
	}
	if !strings.HasPrefix(text, "=== ") {
		r.output[t].WriteString(text)
	}
}

func (r *report) end(t test, action string) {
	show := false
	switch action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		show = true
	case "skip":
		r.skipped++
		if _, ok := r.allowed[t]; !ok {
			r.refused = append(r.refused, t)
			show = true
		}
	}
	if text := r.output[t]; text != nil && show {
		fmt.Fprint(r.out, text.String())
	}
	delete(r.output, t)
}

// finish prints the totals, and says what is wrong with them. Failed tests are the exit status of go test itself, but
// counted as well, in case that status is lost in a pipe.
func (r *report) finish() error {
	// A test that never ended was cut off, by a panic or a time limit: what it printed says why.
	for _, text := range r.output {
		fmt.Fprint(r.out, text.String())
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	var errs []error
	for _, t := range r.refused {
		errs = append(errs, fmt.Errorf("%s %s was skipped: let it run, or list it with the reason", t.pkg, t.name))
	}
	if r.failed > 0 {
		errs = append(errs, fmt.Errorf("%d tests failed", r.failed))
	}
	if len(r.output) > 0 {
		errs = append(errs, fmt.Errorf("%d tests did not end", len(r.output)))
	}
	if r.passed == 0 {
		errs = append(errs, errors.New("no test passed: is the pattern right?"))
	}
	return errors.Join(errs...)
}
