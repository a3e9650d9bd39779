package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// watchActors watches beside the test. stop ends the watch, and returns with what it ended.
func watchActors(t *testing.T, f *testkit.Fleet, subject string, fn func(*messages.ActorEvent)) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	opened, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	f.Go(func() {
		_, err := f.Do(ctx, messages.VerbActorWatch, &messages.ActorWatchParams{Subject: subject}, func(e *messages.Event) error {
			if e.GetActor().GetKind() == "watching" {
				once.Do(func() { close(opened) })
				return nil
			}
			fn(e.GetActor())
			return nil
		})
		once.Do(func() { close(opened) })
		ended <- err
	})
	<-opened
	return func() error {
		cancel(errEnough)
		return <-ended
	}
}

var errEnough = errors.New("enough")

func TestActorWatch_ShowsCommandsTransitionsCommitsAndEffects(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		byActor := map[string][]string{}
		var last float64
		stop := watchActors(t, f, run.ID, func(e *messages.ActorEvent) {
			if e.GetSeq() != last+1 {
				t.Errorf("event %v follows %v", e.GetSeq(), last)
			}
			last = e.GetSeq()
			line := strings.TrimSuffix(fmt.Sprintf("%s %s %s>%s %s", e.GetKind(), e.GetCommand(), e.GetFrom(), e.GetTo(), e.GetText()), " ")
			byActor[e.GetPid()] = append(byActor[e.GetPid()], line)
		})
		d.Succeed()
		run.Wait()
		f.Settle()
		if err := stop(); !errors.Is(err, errEnough) {
			t.Errorf("the watch ended with %v", err)
		}
		var b strings.Builder
		for _, pid := range []string{"leases/" + run.ID + ".0.1/1", "runs/" + run.ID + "/main/only", "runs/" + run.ID} {
			b.WriteString(pid + "\n  " + strings.Join(byActor["swampd/"+pid], "\n  ") + "\n")
		}
		if len(byActor) != 3 {
			t.Errorf("%d actors were seen", len(byActor))
		}
		golden(t, "watch/run.txt", strings.ReplaceAll(b.String(), run.ID, "RUN"))
	})
}

func TestActorWatch_OfAKindOrOfOneActor(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		counts := map[string]map[string]int{}
		var stops []func() error
		for _, subject := range []string{"worker", "fleet/gpu-1", "swampd/fleet", "scheduler"} {
			seen := map[string]int{}
			counts[subject] = seen
			stops = append(stops, watchActors(t, f, subject, func(e *messages.ActorEvent) { seen[e.GetPid()]++ }))
		}
		if n := inspect(t, f, "fleet/gpu-1").GetWatchers(); n != 3 {
			t.Errorf("gpu-1 is watched by %d", n)
		}
		f.Submit(pair).Wait()
		f.Settle()
		for _, stop := range stops {
			_ = stop()
		}
		if n := inspect(t, f, "fleet/gpu-1").GetWatchers(); n != 0 {
			t.Errorf("gpu-1 is still watched by %d", n)
		}
		for subject, want := range map[string]string{"worker": "swampd/fleet/gpu-1 swampd/fleet/gpu-2", "fleet/gpu-1": "swampd/fleet/gpu-1", "swampd/fleet": "swampd/fleet/gpu-1 swampd/fleet/gpu-2", "scheduler": "swampd/scheduler"} {
			seen := counts[subject]
			for _, pid := range strings.Fields(want) {
				if seen[pid] == 0 {
					t.Errorf("a watch of %s saw nothing of %s", subject, pid)
				}
				delete(seen, pid)
			}
			if len(seen) > 0 {
				t.Errorf("a watch of %s saw %v besides", subject, seen)
			}
		}
	})
}

// A reader that is slower than the actors misses events and is told how many; one that stalls is cut off. The actors do not
// wait for either.
func TestActorWatch_AReaderThatIsSlowMissesEventsAndOneThatStallsIsCutOff(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		var seen, dropped float64
		var mu sync.Mutex
		pause := 5 * time.Second
		stop := watchActors(t, f, "scheduler", func(e *messages.ActorEvent) {
			mu.Lock()
			wait := pause
			pause = 0
			mu.Unlock()
			time.Sleep(wait)
			if e.GetKind() == "dropped" {
				dropped += e.GetDropped()
			} else {
				seen++
			}
		})
		began := time.Now()
		for range 300 {
			f.Submit(single).Wait()
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the actors took %s, while the reader was slow", took)
		}
		f.Advance(20 * time.Second)
		if dropped == 0 || seen < 1024 {
			t.Errorf("%v were seen and %v dropped", seen, dropped)
		}
		mu.Lock()
		pause = 11 * time.Second
		mu.Unlock()
		f.Submit(single).Wait()
		f.Advance(20 * time.Second)
		if err := stop(); codeOf(err) != messages.CodeStreamOverflow || !strings.Contains(err.Error(), "the watch is cut off: its reader took 11s") {
			t.Errorf("a reader that stalls ends with %v", err)
		}
	})
}

func TestActorWatch_RefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu())
		for subject, want := range map[string]messages.Code{"fleet/gpu-2": messages.CodeNotFound, "": messages.CodeInvalid} {
			if err := watchActors(t, f, subject, func(*messages.ActorEvent) {})(); codeOf(err) != want {
				t.Errorf("a watch of %q: %v", subject, err)
			}
		}
		if _, err := f.Do(t.Context(), messages.VerbActorWatch, &messages.ActorWatchParams{Subject: "run"}, nil); codeOf(err) != messages.CodeInvalid {
			t.Errorf("a watch that cannot stream: %v", err)
		}
		var stops []func() error
		for range 64 {
			stops = append(stops, watchActors(t, f, "run", func(*messages.ActorEvent) {}))
		}
		if err := watchActors(t, f, "run", func(*messages.ActorEvent) {})(); codeOf(err) != messages.CodeTooManyRequests {
			t.Errorf("the 65th watch: %v", err)
		}
		for _, stop := range stops {
			_ = stop()
		}
	})
}
