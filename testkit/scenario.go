package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Scenarios plays each file that matches the pattern as a test of its own, in virtual time. With rewrite it writes what
// came out of the printing commands into the file instead of comparing it; a test has a flag for that:
//
//	var rewrite = flag.Bool("rewrite", false, "write what the scenarios print anew")
//
//	func TestScenarios(t *testing.T) { testkit.Scenarios(t, "testdata/*.txt", *rewrite) }
//
// A file is a list of commands, one a line; docs/testkit.md has all of them. Indented lines belong to the command before
// them. A # begins a comment. A command that prints is followed by a line ---- and what it prints, up to an empty line.
//
//	submit r1
//	  name: nightly
//	  labels: {gpu: "true"}
//	  jobs: [{name: main, steps: [{name: fit, run: ./fit.sh}]}]
//	expect r1/fit waits for labels gpu=true
//	worker gpu-1 gpu=true
//	do gpu-1 succeed
//	expect r1 succeeds
//	story r1
//	----
//	0s run_started
//
// Who comes first, where several things happen at one instant, follows from the file's name: a scenario comes out the same
// each time, on any number of processors.
func Scenarios(t *testing.T, pattern string, rewrite bool) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("testkit: no scenario matches %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("testkit: %v", err)
			}
			got := PlayScenario(t, file, string(source))
			switch {
			case got == string(source):
			case rewrite:
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatalf("testkit: rewrite: %v", err)
				}
			default:
				t.Errorf("testkit: %s prints something else (+); -rewrite takes it over:\n%s", file, cmp.Diff(string(source), got))
			}
		})
	}
}

// PlayScenario plays one scenario in virtual time, and returns its text with what it has printed.
func PlayScenario(t *testing.T, name, source string) string {
	t.Helper()
	commands, err := parseScenario(source)
	if err != nil {
		t.Fatalf("testkit: %s:%v", name, err)
	}
	Bubble(t, func(t *testing.T) { playAll(t, name, commands) })
	return writeScenario(source, commands)
}

// playAll plays commands in the bubble of a test.
func playAll(t testing.TB, name string, commands []*command) {
	t.Helper()
	p := &player{
		name: filepath.Base(name), began: time.Now(), runs: make(map[string]*Run), held: make(map[string][]*Dispatch),
		tokens: make(map[string]string), known: make(map[string]*Worker),
	}
	p.t = &placed{TB: t, player: p}
	for _, c := range commands {
		p.at = c
		p.play(c)
	}
	if p.f == nil {
		t.Fatalf("testkit: %s: there is no command that does anything", name)
	}
}

// command is one command of a scenario.
type command struct {
	line  int // from 1 on
	words []string
	body  string // the indented lines, without their indent
	// outAt and outTo are the lines of what it prints, as the file has them: the line ---- and what follows it.
	outAt, outTo int
	prints       bool
	output       string
}

// rest is all words from the nth on.
func (c *command) rest(n int) string {
	if len(c.words) <= n {
		return ""
	}
	return strings.Join(c.words[n:], " ")
}

func (c *command) word(n int) string {
	if len(c.words) <= n {
		return ""
	}
	return c.words[n]
}

const outputMark = "----"

// printing are the commands that print.
func printing(name string) bool {
	return slices.Contains([]string{"story", "queue", "workers", "trace"}, name)
}

func parseScenario(source string) ([]*command, error) {
	var all []*command
	var last *command
	lines := strings.Split(source, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case line == outputMark:
			if last == nil || !last.prints || last.outAt > 0 {
				return nil, fmt.Errorf("%d: what is before %s does not print", i+1, outputMark)
			}
			last.outAt = i
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
			last.outTo = i + 1
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			if last != nil && last.body != "" && strings.TrimSpace(line) == "" {
				last = nil
			}
		case line[0] == ' ' || line[0] == '\t':
			if last == nil {
				return nil, fmt.Errorf("%d: an indented line belongs to a command, and there is none", i+1)
			}
			last.body += strings.TrimPrefix(line, "  ") + "\n"
		default:
			words := strings.Fields(line)
			last = &command{line: i + 1, words: words, prints: printing(words[0])}
			all = append(all, last)
		}
	}
	return all, nil
}

// writeScenario puts what was printed into the text.
func writeScenario(source string, commands []*command) string {
	lines := strings.Split(source, "\n")
	var out []string
	at := 0
	for _, c := range commands {
		if !c.prints {
			continue
		}
		end := c.line
		if c.outAt > 0 {
			end = c.outAt
		}
		out = append(out, lines[at:end]...)
		out = append(out, outputMark)
		if c.output != "" {
			out = append(out, strings.Split(strings.TrimSuffix(c.output, "\n"), "\n")...)
		}
		at = end
		if c.outAt > 0 {
			at = c.outTo
		}
		if at >= len(lines) || lines[at] != "" {
			out = append(out, "")
		}
	}
	return strings.Join(append(out, lines[at:]...), "\n")
}

// placed is a test that says where in a scenario it fails.
type placed struct {
	testing.TB
	player *player
}

func (p *placed) where() string {
	return fmt.Sprintf("%s:%d: %s", p.player.name, p.player.at.line, strings.Join(p.player.at.words, " "))
}

// Errorf, Error, Fatalf and Fatal stand in for those of the test.
func (p *placed) Errorf(format string, args ...any) {
	p.TB.Helper()
	p.TB.Errorf("%s: %s", p.where(), fmt.Sprintf(format, args...))
}

func (p *placed) Error(args ...any) { p.TB.Helper(); p.Errorf("%s", fmt.Sprint(args...)) }

func (p *placed) Fatalf(format string, args ...any) {
	p.TB.Helper()
	p.TB.Fatalf("%s: %s", p.where(), fmt.Sprintf(format, args...))
}

func (p *placed) Fatal(args ...any) { p.TB.Helper(); p.Fatalf("%s", fmt.Sprint(args...)) }

// duration reads a duration of a command.
func (p *player) duration(text string) time.Duration {
	p.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		p.t.Fatalf("want a duration, such as 90s: %v", err)
	}
	return d
}

// count reads a number of a command.
func (p *player) count(text string) int {
	p.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Fatalf("want a number: %v", err)
	}
	return n
}
