//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// artifact is a version as swamp data shows it.
type artifact struct {
	Name    string
	Version int
	Size    float64
	Digest  string
	Open    bool
	Step    *string
	Worker  *string
}

func (f *fleet) versions(name string) []artifact {
	f.t.Helper()
	var all list[artifact]
	f.json(&all, "data", "versions", name, "--limit", "0")
	return all.Items
}

func TestData_FromWithinAStepAndFromOutside(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"a worker": {"labels: {pool: a}"}, "loopback": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.worker("w", "--label", "pool=a")
			run := f.follow(flow(step("write", `
echo one | swamp data put reports/daily
printf 'two\n' > two; swamp data put reports/daily two --content-type text/plain
for i in 1 2 3; do echo "line $i" | swamp data append log; done
[ "$(swamp data get log)" = "$(printf 'line 1\nline 2\nline 3')" ]
[ "$(swamp data get reports/daily --version 1)" = one ]
swamp data get reports/daily -o copy; cmp copy two
swamp data list reports/ --output json | grep -q '"version":2'
swamp data versions reports/daily --output json | grep -q '"count":2'
swamp data query 'kind == "artifact" && name == "log"' | grep -q '"name":"log"'
if swamp data get missing 2>err; then exit 9; fi
if command -v curl >/dev/null; then
  curl -sf --unix-socket "${SWAMP_DATA_URL#unix://}" -T two http://data/v1/data/by-curl
  [ "$(curl -sf --unix-socket "${SWAMP_DATA_URL#unix://}" http://data/v1/data/by-curl)" = two ]
  [ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "${SWAMP_DATA_URL#unix://}" -X POST -d '{}' http://data/v1/rpc/worker.list)" = 404 ]
fi
echo "$SWAMP_DATA_URL"
`, keys...)))
			run.exits(60*time.Second, 0)
			socket := strings.TrimPrefix(strings.TrimSpace(lastLine(output(run.events(), "write", "stdout"))), "unix://")
			if _, err := os.Stat(socket); socket == "" || !os.IsNotExist(err) {
				t.Errorf("the socket %q is left: %v", socket, err)
			}
			if got := f.swamp("data", "get", "reports/daily"); got != "two" {
				t.Errorf("outside it is %q", got)
			}
			if got := f.swamp("data", "put", "from/outside", f.write("outside")); got != "from/outside version 1, 7 bytes" {
				t.Errorf("it says %q", got)
			}
			log := f.versions("log")
			if len(log) != 1 || log[0].Open || log[0].Size != 21 || log[0].Step == nil || *log[0].Step != "write" {
				t.Errorf("the log is %+v", log)
			}
		})
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// A write that finds nobody waits for the worker's orchestrator: behind a cut, and behind a crash, after which the step
// shows a credential of another boot.
func TestData_AWriteOutlivesItsOrchestratorsAbsence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		away     func(*fleet, *proxy, *worker)
		backSoon func(*fleet, *proxy)
	}{
		{
			"a cut", func(_ *fleet, n *proxy, _ *worker) { n.deny(true); n.cut() },
			func(_ *fleet, n *proxy) { n.deny(false) },
		},
		{"a crash", func(f *fleet, _ *proxy, _ *worker) { f.crash() }, func(f *fleet, _ *proxy) { f.restart() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			network := newProxy(t, f.addr)
			w := f.behind(network, "w", "--label", "pool=a")
			ledger := newLedger(f)
			wait := strings.TrimSuffix(strings.SplitN(ledger.gate(), "\n", 3)[1], "\n")
			run := f.detach(flow(step("put", ledger.script(wait+`
head -c 1000000 /dev/zero > body
touch `+ledger.path+`.putting
swamp data put big body
echo after | swamp data append log`), "labels: {pool: a}")))
			ledger.started(t, "put", 1, 20*time.Second)
			tt.away(f, network, w)
			w.line(60*time.Second, "retrying")
			ledger.open(t)
			eventually(t, 20*time.Second, "the write", func() error {
				_, err := os.Stat(ledger.path + ".putting")
				return err
			})
			tt.backSoon(f, network)
			f.ends(run, 90*time.Second, "succeeded")
			ledger.check(t, map[string]int{"put": 1})
			if got := f.versions("big"); len(got) != 1 || got[0].Size != 1e6 {
				t.Errorf("there is %+v", got)
			}
			if got := f.swamp("data", "get", "log"); got != "after" {
				t.Errorf("the log is %q", got)
			}
		})
	}
}

func TestData_AppendsCountOnceThoughConnectionsBreak(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	f.behind(network, "w", "--label", "pool=a")
	const lines = 60
	run := f.follow(flow(step("append", fmt.Sprintf("for i in $(seq %d); do echo \"$i\" | swamp data append log >/dev/null; echo $i; done", lines),
		"labels: {pool: a}")))
	for i := range 6 {
		eventually(t, 60*time.Second, "more appends", func() error {
			if have := strings.Count(output(run.events(), "append", ""), "\n"); have < 8*i+4 {
				return fmt.Errorf("%d so far", have)
			}
			return nil
		})
		network.cut()
	}
	run.exits(90*time.Second, 0)
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if got := f.swamp("data", "get", "log"); got != strings.TrimSpace(want.String()) {
		t.Errorf("the log is %q", got)
	}
}

func TestData_AWorkerLostAfterAWriteFailsTheRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "2s")
	w := f.worker("gpu-1", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.detach(flow(step("charge", "echo 1 | swamp data put receipt\n"+ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "charge", 1, 20*time.Second)
	w.kill()
	s := f.ends(run, 60*time.Second, "failed").step("charge")
	if said := fmt.Sprint(deref(s.Code), deref(s.Error)); !strings.HasPrefix(said, "lost_after_write") || !strings.Contains(said, "gpu-1") || !strings.Contains(said, "charge") {
		t.Errorf("the step is %+v", s)
	}
	if got := f.versions("receipt"); len(got) != 1 {
		t.Errorf("there is %+v", got)
	}
}

func TestData_StepsThatWriteAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a", "--concurrency", "2")
	script := `for i in $(seq 5); do echo "$SWAMP_STEP $i" | swamp data put shared; echo "$i" | swamp data append "own/$SWAMP_STEP"; done`
	run := f.follow(flow(step("a", script, "labels: {pool: a}"), step("b", script, "labels: {pool: a}")))
	run.exits(60*time.Second, 0)
	if got := f.versions("shared"); len(got) != 10 {
		t.Errorf("%d versions: %+v", len(got), got)
	}
	for _, name := range []string{"a", "b"} {
		if got := f.swamp("data", "get", "own/"+name); got != "1\n2\n3\n4\n5" {
			t.Errorf("%s has %q", name, got)
		}
	}
}

func TestData_ALargeBodyTakesNoMemoryOfTheWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	const size = 200_000_000
	run := f.follow(flow(step("big", fmt.Sprintf("head -c %d /dev/zero | swamp data put big\nswamp data get big | wc -c", size), "labels: {pool: a}")))
	run.exits(120*time.Second, 0)
	if got := output(run.events(), "big", "stdout"); !strings.HasSuffix(strings.TrimSpace(got), fmt.Sprint(size)) {
		t.Errorf("it says %q", got)
	}
	if peak := statusNumber(t, w.pid, "VmHWM"); peak > 100<<10 {
		t.Errorf("the worker took %d KiB", peak)
	}
}

func TestData_AStepThatEndsTakesItsRequestsWithIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	run := f.follow(flow(step("quick", `
(echo half; exec sleep 1000) | swamp data put never &
until swamp data list >/dev/null; do :; done
echo whole | swamp data put there
`, "labels: {pool: a}")))
	run.exits(60*time.Second, 0)
	var all list[artifact]
	f.json(&all, "data", "list")
	if len(all.Items) != 1 || all.Items[0].Name != "there" {
		t.Errorf("there is %+v", all.Items)
	}
}

// deref is what a field that may be null says.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
