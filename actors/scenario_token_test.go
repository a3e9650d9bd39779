package actors_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
	"github.com/swampd/swampd/testkit"
)

// tokenState is the state of a token as worker.token.list has it.
func tokenState(f *testkit.Fleet, name string) string {
	for _, item := range f.Tokens() {
		if item.GetName() == name {
			return item.GetState()
		}
	}
	return ""
}

func TestToken_AdmitsOneMachineAndThatOneAgain(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("gpu-1")
		if got := tokenState(f, "gpu-1"); got != string(messages.TokenUnused) {
			t.Errorf("the token is %s, want unused", got)
		}
		w := f.Worker("gpu-1", testkit.WithToken(token))
		if w.Name() != "gpu-1" || tokenState(f, "gpu-1") != string(messages.TokenEnrolled) {
			t.Errorf("the worker is called %s and the token is %s, want gpu-1 and enrolled", w.Name(), tokenState(f, "gpu-1"))
		}
		if _, err := f.Enroll("gpu-1", testkit.WithToken(token)); codeOf(err) != messages.CodeEnrollmentsSpent {
			t.Errorf("a second machine: %v, want enrollment_exhausted", err)
		}
		w.Drop()
		w.Reconnect()
		w.Drop()
		w.Reconnect(testkit.AsNewInstance())
		if got := f.WorkerNamed("gpu-1").GetStatus(); got != string(messages.WorkerIdle) {
			t.Errorf("the worker is %s, want idle", got)
		}
	})
}

func TestToken_ForThreeMachinesAdmitsThreeOfTenThatRace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		testkit.Bubble(t, func(t *testing.T) {
			f := testkit.Start(t, testkit.WithJitter(seed, 5*time.Millisecond))
			token := f.Token("pool", testkit.MaxEnrollments(3))
			var mu sync.Mutex
			var admitted []string
			refused := 0
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					w, err := f.Enroll("pool", testkit.WithToken(token), gpu())
					mu.Lock()
					defer mu.Unlock()
					switch codeOf(err) {
					case "":
						admitted = append(admitted, w.Name())
					case messages.CodeEnrollmentsSpent:
						refused++
					default:
						t.Errorf("enroll: %v", err)
					}
				})
			}
			wg.Wait()
			slices.Sort(admitted)
			if len(slices.Compact(admitted)) != 3 || refused != 7 {
				t.Errorf("admitted are %v and refused %d, want three by different names and seven", admitted, refused)
			}
			for _, name := range admitted {
				if !strings.HasPrefix(name, "pool-") || len(name) != len("pool-")+8 {
					t.Errorf("a worker is called %s, want pool- and 8 hex digits", name)
				}
			}
			if got := len(f.Tokens()[0].GetBindings()); got != 3 {
				t.Errorf("the token has %d bindings, want 3", got)
			}
		})
	}
}

func TestToken_AKnownMachineIsAdmittedToASpentToken(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("pool", testkit.MaxEnrollments(2))
		a := f.Worker("pool", testkit.WithToken(token))
		f.Worker("pool", testkit.WithToken(token))
		name := a.Name()
		a.Drop()
		a.Reconnect(testkit.AsNewInstance())
		if a.Name() != name {
			t.Errorf("the machine is called %s now and %s before", a.Name(), name)
		}
	})
}

func TestToken_RevocationClosesTheSocketAndLosesWhatRunsAtOnce(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		f.Worker("gpu-2", testkit.Labels{"gpu": "true", "spare": "yes"})
		run := f.Submit(oneStep(`labels: {gpu: "true"}`))
		d := w.NextDispatch().Accept()
		f.Settle()
		f.RevokeToken("gpu-1")
		if fault := w.WaitClosed(); fault.Code != messages.CodeTokenRevoked {
			t.Errorf("the socket was closed with %s, want token_revoked", fault.Code)
		}
		if diff := cmp.Diff([]string{"revoked"}, w.Goodbyes()); diff != "" {
			t.Errorf("goodbyes (-want +got):\n%s", diff)
		}
		run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
		run.WaitEvent(messages.EventStepDispatched, "worker=gpu-2")
		if sinceStart() != 0 {
			t.Errorf("it took %s, want no grace", sinceStart())
		}
		if err := w.TryReconnect(testkit.Forgetting()); codeOf(err) != messages.CodeTokenRevoked {
			t.Errorf("to come back: %v, want token_revoked", err)
		}
		d.Succeed() // nobody hears it
		if got := f.WorkerNamed("gpu-1"); got.GetStatus() != string(messages.WorkerDisconnected) || got.GetReason() != "token_revoked" {
			t.Errorf("the worker is %s because of %q, want disconnected because of token_revoked", got.GetStatus(), got.GetReason())
		}
		if got := tokenState(f, "gpu-1"); got != string(messages.TokenRevoked) {
			t.Errorf("the token is %s, want revoked", got)
		}
		run.Cancel()
	})
}

func TestToken_RevocationLeavesAWorkerThatIsCutOffItsGrace(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Accept()
		f.Settle()
		w.Drop()
		f.Settle()
		f.RevokeToken("gpu-1")
		run.WaitEvent(messages.EventStepWorkerLost)
		if sinceStart() != time.Minute {
			t.Errorf("it was lost after %s, want with the grace of 1m", sinceStart())
		}
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
	})
}

func TestToken_ExpiryClosesTheSocketsOfItsWorkers(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("pool", testkit.MaxEnrollments(-1), testkit.ValidFor(10*time.Minute))
		a, b := f.Worker("pool", testkit.WithToken(token), gpu()), f.Worker("pool", testkit.WithToken(token), gpu())
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepDispatched)
		f.Advance(10*time.Minute - time.Millisecond)
		if !a.Connected() || !b.Connected() {
			t.Error("a worker was disconnected before the token's time")
		}
		for _, w := range []*testkit.Worker{a, b} {
			if fault := w.WaitClosed(); fault.Code != messages.CodeTokenExpired {
				t.Errorf("the socket was closed with %s, want token_expired", fault.Code)
			}
			if err := w.TryReconnect(); codeOf(err) != messages.CodeTokenExpired {
				t.Errorf("to come back: %v, want token_expired", err)
			}
		}
		if sinceStart() != 10*time.Minute || tokenState(f, "pool") != string(messages.TokenExpired) {
			t.Errorf("after %s the token is %s, want after 10m expired", sinceStart(), tokenState(f, "pool"))
		}
		run.WaitEvent(messages.EventStepWorkerLost)
		f.Worker("other", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestToken_AWrongSecretIsRefusedAndTooManyAreHeldOff(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		good := f.Token("gpu-1")
		from := testkit.Remote("198.51.100.7:1234")
		for i, token := range []string{"gpu-1.wrong", "gpu-1.", "gpu-1", "", ".", "nobody.secret", "GPU.secret", good + "0"} {
			if token == "" {
				token = "-"
			}
			if _, err := f.Enroll("gpu-1", testkit.WithToken(token), from); codeOf(err) != messages.CodeInvalidToken {
				t.Errorf("token %d, %q: %v, want invalid_token", i, token, err)
			}
		}
		for range 12 {
			_, _ = f.Enroll("gpu-1", testkit.WithToken("gpu-1.wrong"), from) // 20 in all
		}
		if _, err := f.Enroll("gpu-1", testkit.WithToken(good), from); codeOf(err) != messages.CodeRateLimited {
			t.Errorf("after 20 failures: %v, want rate_limited", err)
		}
		f.Worker("gpu-1", testkit.WithToken(good)) // from elsewhere
		f.Advance(time.Minute + time.Second)
		if _, err := f.Enroll("gpu-1", testkit.WithToken(good), from); codeOf(err) != messages.CodeEnrollmentsSpent {
			t.Errorf("a minute later: %v, want to be heard again", err)
		}
	})
}

func TestToken_ItsNameCanBeGivenAgainAndTheOldSecretIsWorthNothing(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		old := f.Token("gpu-1")
		if _, err := f.Do(t.Context(), messages.VerbWorkerTokenCreate, &messages.WorkerTokenCreateParams{Name: "gpu-1"}, nil); codeOf(err) != messages.CodeExists {
			t.Errorf("create it twice: %v, want exists", err)
		}
		w := f.Worker("gpu-1", testkit.WithToken(old), testkit.Machine("m"))
		f.RevokeToken("gpu-1")
		w.WaitClosed()
		again := f.Token("gpu-1")
		if err := w.TryReconnect(); codeOf(err) != messages.CodeInvalidToken {
			t.Errorf("with the old secret: %v, want invalid_token", err)
		}
		f.Worker("gpu-1", testkit.WithToken(again), testkit.Machine("another"))
		f.Settle()
		if got := f.WorkerNamed("gpu-1"); !got.GetConnected() || got.GetMachineId() != "another" {
			t.Errorf("the worker is connected %t as machine %s, want the new one", got.GetConnected(), got.GetMachineId())
		}
	})
}

// While one commit is under way, what arrives for a token gathers. However much that is, nobody is forgotten.
func TestToken_AdmitsMoreMachinesAtOnceThanOneCommitHolds(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		slow := func(*persistence.Batch) error { time.Sleep(10 * time.Millisecond); return nil } // a disk in virtual time
		f := testkit.Start(t, testkit.WithJournal(memstore.Options{Before: slow}))
		token := f.Token("pool", testkit.MaxEnrollments(-1))
		const machines = persistence.MaxEntries + 100
		failed := make(chan error, machines)
		var wg sync.WaitGroup
		for range machines {
			wg.Go(func() {
				if _, err := f.Enroll("pool", testkit.WithToken(token)); err != nil {
					failed <- err
				}
			})
		}
		wg.Wait()
		if took := sinceStart(); took > 5*time.Second {
			t.Errorf("it took %s: some had to ask again", took)
		}
		if len(failed) > 0 {
			t.Errorf("%d of %d machines were not admitted, one of them for: %v", len(failed), machines, <-failed)
		}
	})
}
