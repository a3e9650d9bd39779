//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// clientEnv is what a client needs to find the orchestrator.
func (f *fleet) clientEnv() []string {
	return []string{"SWAMP_SERVER=" + f.url(), "SWAMP_SERVER_TOKEN=" + f.admin()}
}

// client starts a command of swamp.
func (f *fleet) client(args ...string) *process {
	f.t.Helper()
	return f.launch("swamp", startOptions{env: f.clientEnv()}, args...)
}

// swamp runs a command of swamp to its end, wants 0, and returns what it printed.
func (f *fleet) swamp(args ...string) string {
	f.t.Helper()
	p := f.client(args...)
	p.exits(60*time.Second, 0)
	return strings.Join(p.stdout(), "\n")
}

// json runs a command of swamp with --output json into a value.
func (f *fleet) json(into any, args ...string) {
	f.t.Helper()
	out := f.swamp(append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		f.t.Fatalf("swamp %s prints no such JSON: %v: %s", strings.Join(args, " "), err, out)
	}
}

// list is the shape of every list.
type list[T any] struct {
	Items []T
	Count int
}

// call asks a verb over HTTP into a value. It costs no process, so that waiting for something costs little.
func (f *fleet) call(verb, params string, into any) error {
	r, err := http.NewRequest(http.MethodPost, f.url()+"/v1/rpc/"+verb, strings.NewReader(params))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+f.admin())
	answer, err := f.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", verb, answer.Status, body)
	}
	return json.Unmarshal(body, into)
}

// body is the latest version of an artifact.
func (f *fleet) body(name string) string {
	f.t.Helper()
	r, err := http.NewRequest(http.MethodGet, f.url()+"/v1/data/"+name, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.admin())
	answer, err := f.http.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		f.t.Fatalf("get %s: %s: %v: %s", name, answer.Status, err, body)
	}
	return string(body)
}

// ask is call that must succeed, within the time that a restart may take.
func (f *fleet) ask(verb, params string, into any) {
	f.t.Helper()
	eventually(f.t, 20*time.Second, verb, func() error { return f.call(verb, params, into) })
}

// A runShown is what run show says.
type runShown struct {
	RunID, WorkflowName, Status string
	Error                       *string
	CancelRequested             bool
	Jobs                        []struct {
		Name, Status string
		Steps        []stepShown
	}
}

// A stepShown is a step in run show.
type stepShown struct {
	Name, Status       string
	Worker, DispatchID *string
	Attempts, Losses   int
	Error, Code        *string
}

func (r runShown) ended() bool {
	return slices.Contains([]string{"succeeded", "failed", "cancelled"}, r.Status)
}

// step finds a step by its name.
func (r runShown) step(name string) stepShown {
	for _, j := range r.Jobs {
		for _, s := range j.Steps {
			if s.Name == name {
				return s
			}
		}
	}
	return stepShown{}
}

func (r runShown) String() string {
	data, _ := json.Marshal(r)
	return string(data)
}

// show is run show.
func (f *fleet) show(id string) runShown {
	f.t.Helper()
	var run runShown
	f.ask("run.show", fmt.Sprintf(`{"runId":%q}`, id), &run)
	return run
}

// ends waits until the run has ended as wanted.
func (f *fleet) ends(id string, within time.Duration, want string) runShown {
	f.t.Helper()
	var run runShown
	eventually(f.t, within, "run "+id+" ends", func() error {
		if run = f.show(id); !run.ended() {
			return fmt.Errorf("it is %s: %s", run.Status, run)
		}
		return nil
	})
	if run.Status != want {
		f.t.Fatalf("the run ended as %s, not %s: %s", run.Status, want, run)
	}
	return run
}

// stepIs waits until a step has that status.
func (f *fleet) stepIs(id, step, want string, within time.Duration) stepShown {
	f.t.Helper()
	var s stepShown
	eventually(f.t, within, fmt.Sprintf("step %s is %s", step, want), func() error {
		run := f.show(id)
		if s = run.step(step); s.Status != want {
			return fmt.Errorf("it is %s: %s", s.Status, run)
		}
		return nil
	})
	return s
}

// A workerShown is a row of worker list.
type workerShown struct {
	Name, Status, Intent, Health string
	Connected                    bool
	Reason                       *string
	Labels                       map[string]string
	Capacity                     int
	ActiveDispatchIDs            []string
	InstanceUUID, MachineID      *string
}

// workers is worker list --all.
func (f *fleet) workers() []workerShown {
	f.t.Helper()
	var workers list[workerShown]
	f.ask("worker.list", `{"all":true}`, &workers)
	return workers.Items
}

// workerIs waits until a worker has that status.
func (f *fleet) workerIs(name, want string, within time.Duration) workerShown {
	f.t.Helper()
	var w workerShown
	eventually(f.t, within, fmt.Sprintf("worker %s is %s", name, want), func() error {
		all := f.workers()
		i := slices.IndexFunc(all, func(w workerShown) bool { return w.Name == name })
		if i < 0 {
			return fmt.Errorf("it is not in the list: %+v", all)
		}
		if w = all[i]; w.Status != want {
			return fmt.Errorf("it is %s: %+v", w.Status, w)
		}
		return nil
	})
	return w
}

// A waiting is a row of worker queue.
type waiting struct {
	QueueID, Requirement, Why, RunID, WorkflowName, JobName, StepName string
	ModelType, MethodName                                             string
	Labels                                                            map[string]string
	AgeMs                                                             float64
}

// queue is worker queue.
func (f *fleet) queue() []waiting {
	f.t.Helper()
	var q list[waiting]
	f.ask("worker.queue.list", `{}`, &q)
	return q.Items
}

// queueHas waits until the queue holds n steps.
func (f *fleet) queueHas(n int, within time.Duration) []waiting {
	f.t.Helper()
	var q []waiting
	eventually(f.t, within, fmt.Sprintf("%d steps wait", n), func() error {
		if q = f.queue(); len(q) != n {
			return fmt.Errorf("%d wait: %+v", len(q), q)
		}
		return nil
	})
	return q
}

// detach submits a workflow and leaves it; it returns the run's id.
func (f *fleet) detach(yaml string) string {
	f.t.Helper()
	return f.swamp("workflow", "run", f.write(yaml), "--detach")
}

// An event is one line of a run's stream.
type event struct {
	Kind, RunID, Job, Step, Requirement, Why, QueueID, Worker, DispatchID string
	Seq, Attempt, Offset                                                  int
	Stream, Line, Error, Code                                             string
	Partial                                                               bool
	Outputs                                                               map[string]string
}

// follower is a command that prints a run's events.
type follower struct{ *process }

// follow runs a workflow with --output json and does not wait.
func (f *fleet) follow(yaml string, flags ...string) follower {
	f.t.Helper()
	return follower{f.client(append([]string{"workflow", "run", f.write(yaml), "--output", "json"}, flags...)...)}
}

// events are those printed so far.
func (p follower) events() []event {
	p.t.Helper()
	events, err := parseEvents(p.stdout())
	if err != nil {
		p.t.Fatalf("%s prints no JSON: %v", p.name, err)
	}
	return events
}

func parseEvents(lines []string) ([]event, error) {
	events := make([]event, 0, len(lines))
	for i, line := range lines {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return events, fmt.Errorf("line %d: %w", i+1, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// readEvents parses a file of events.
func readEvents(path string) ([]event, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseEvents(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
}

// event waits for an event of that kind, of that step unless it is empty.
func (p follower) event(within time.Duration, kind, step string) event {
	p.t.Helper()
	var found event
	eventually(p.t, within, fmt.Sprintf("event %s %s", kind, step), func() error {
		alive := p.alive()
		for _, e := range p.events() {
			if e.Kind == kind && (step == "" || e.Step == step) {
				found = e
				return nil
			}
		}
		if !alive {
			p.t.Fatalf("%s ended with %d without %s %s: %s", p.name, p.code, kind, step, p.text())
		}
		return fmt.Errorf("there are: %s", strings.Join(kinds(p.events()), " "))
	})
	return found
}

// kinds are the kinds of events in order.
func kinds(events []event) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.Kind
	}
	return list
}

// dense wants numbers that rise by one from 1, and output with offsets that rise within its dispatch.
func dense(events []event) error {
	seq, offsets := 0, map[string]int{}
	for i, e := range events {
		if e.Kind == "step_output" {
			if last, seen := offsets[e.DispatchID]; seen && e.Offset <= last {
				return fmt.Errorf("event %d: output at %d of %s after %d", i, e.Offset, e.DispatchID, last)
			}
			offsets[e.DispatchID] = e.Offset
			continue
		}
		if e.Seq != seq+1 {
			return fmt.Errorf("event %d is %s with number %d after %d", i, e.Kind, e.Seq, seq)
		}
		seq = e.Seq
	}
	return nil
}

// output joins what a step printed to a stream, or to both if the stream is empty.
func output(events []event, step, stream string) string {
	var b bytes.Buffer
	for _, e := range events {
		if e.Kind == "step_output" && e.Step == step && (stream == "" || e.Stream == stream) {
			b.WriteString(e.Line)
			if !e.Partial {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// flow is a workflow of one job. Each step is `name: script`, with more keys between as JSON.
func flow(steps ...string) string {
	return "name: flow\nqueueTimeout: 0\njobs:\n  - name: main\n    steps:\n" + strings.Join(steps, "")
}

// step is one step of flow: its script, and keys such as `labels: {pool: a}`.
func step(name, script string, keys ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "      - name: %s\n", name)
	for _, k := range keys {
		fmt.Fprintf(&b, "        %s\n", k)
	}
	b.WriteString("        run: |\n")
	for line := range strings.Lines(script) {
		b.WriteString("          " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}
