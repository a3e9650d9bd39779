package actors

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// A worker may name any number of dispatches. Its record stays one that the journal takes, and the step of a dispatch that
// it has to abort waits for the grace: the worker is still at it when it is told.
func TestWorker_NamesMoreThanItsRecordHolds(t *testing.T) {
	t.Parallel()
	w := sampleWorker(false, messages.IntentNone, messages.HealthOK, 0)
	last := awaitWorker{step: stepAddress("r", "j", "last"), lease: "run-of-some-thirty-six-characters-or.19999.1/1"}
	gone := awaitWorker{step: stepAddress("r", "j", "gone"), lease: "another.0.1/1"}
	w.awaiting = []awaitWorker{last, gone}
	e := sampleEnroll("i", 99)
	e.params.InFlight = nil
	for i := range 20_000 {
		e.params.InFlight = append(e.params.InFlight, &messages.InFlight{
			DispatchId: fmt.Sprintf("run-of-some-thirty-six-characters-or.%d.1", i), Generation: 1, State: "running",
		})
	}
	w, d := stepWorker(w, e, walkNow())
	if size := proto.Size(d.writes[0].body); size > 500<<10 {
		t.Errorf("its record takes %d bytes", size)
	}
	verdicts := make(map[string]int)
	back := make(map[address]bool)
	for _, x := range d.effects {
		switch x := x.(type) {
		case transmit:
			for _, v := range x.frame.GetResponse().GetWorkerEnroll().GetInFlight() {
				verdicts[v.GetAction()]++
			}
		case tell:
			if _, ok := x.msg.(workerBack); ok {
				back[x.to] = true
			}
		}
	}
	if verdicts["wait"] < 5000 || verdicts["abort"] == 0 || verdicts["wait"]+verdicts["abort"] != 20_000 || verdicts["wait"] != len(w.claims) {
		t.Errorf("verdicts %v, claims %d", verdicts, len(w.claims))
	}
	if back[last.step] || !back[gone.step] {
		t.Errorf("told that they wait for nothing: %v", back)
	}
	last.over = true
	if _, d := stepWorker(w, last, walkNow()); len(d.effects) != 1 || d.effects[0] != (tell{last.step, workerBack{}}) {
		t.Errorf("after its grace it is told %v", d.effects)
	}
}
