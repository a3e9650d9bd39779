package actors

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// invoker writes down what a mailbox hands over, one at a time.
type invoker struct {
	mu     sync.Mutex
	inside int
	got    []string
	failed []string
	// meanwhile, if set, is called within the handling of a message.
	meanwhile func(msg any)
}

func (i *invoker) handle(what string, msg any) {
	i.mu.Lock()
	i.inside++
	if i.inside > 1 {
		panic("two at once")
	}
	i.got = append(i.got, fmt.Sprint(what, msg))
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		i.inside--
		i.mu.Unlock()
	}()
	if i.meanwhile != nil {
		i.meanwhile(msg)
	}
}

func (i *invoker) InvokeSystemMessage(msg any) { i.handle("system ", msg) }
func (i *invoker) InvokeUserMessage(msg any)   { i.handle("user ", msg) }
func (i *invoker) EscalateFailure(reason, msg any) {
	i.failed = append(i.failed, fmt.Sprint(reason, " at ", msg))
}

func newMailbox(t *testing.T, i *invoker) *mailbox {
	t.Helper()
	m := &mailbox{dispatcher: &dispatcher{}}
	m.RegisterHandlers(i, nil)
	t.Cleanup(m.dispatcher.stop)
	return m
}

// settle waits until the mailbox does not run.
func settleMailbox(m *mailbox) []string {
	m.dispatcher.stop()
	i := m.invoker.(*invoker)
	return i.got
}

func TestMailbox_SystemMessagesOvertakeTheOthers(t *testing.T) {
	t.Parallel()
	i := &invoker{}
	m := newMailbox(t, i)
	begun, first := make(chan struct{}), make(chan struct{})
	i.meanwhile = func(msg any) {
		if msg == 1 {
			close(begun)
			<-first
		}
	}
	m.PostUserMessage(1)
	<-begun
	m.PostUserMessage(2)
	m.PostSystemMessage("a")
	m.PostUserMessage(3)
	m.PostSystemMessage("b")
	if n := m.UserMessageCount(); n != 2 {
		t.Errorf("%d messages wait", n)
	}
	close(first)
	if diff := cmp.Diff([]string{"user 1", "system a", "system b", "user 2", "user 3"}, settleMailbox(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMailbox_WhileSuspendedOnlySystemMessagesAreHandled(t *testing.T) {
	t.Parallel()
	i := &invoker{}
	m := newMailbox(t, i)
	m.PostSystemMessage(&actor.SuspendMailbox{})
	m.PostUserMessage(1)
	m.PostSystemMessage("a")
	m.PostUserMessage(2)
	m.PostSystemMessage(&actor.ResumeMailbox{})
	m.PostUserMessage(3)
	got := settleMailbox(m)
	if users := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s == "system a" }); !slices.Equal(users, []string{"user 1", "user 2", "user 3"}) || len(got) != 4 {
		t.Errorf("it handled %q", got)
	}
}

func TestMailbox_GoesOnAfterAPanic(t *testing.T) {
	t.Parallel()
	i := &invoker{meanwhile: func(msg any) {
		if msg == 2 {
			panic("oh")
		}
	}}
	m := newMailbox(t, i)
	for n := range 4 {
		m.PostUserMessage(n)
	}
	if diff := cmp.Diff([]string{"user 0", "user 1", "user 2", "user 3"}, settleMailbox(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"oh at 2"}, i.failed); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

// An actor can be found before it is ready: what comes then waits.
func TestMailbox_KeepsWhatComesBeforeItsHandler(t *testing.T) {
	t.Parallel()
	m := &mailbox{dispatcher: &dispatcher{}}
	m.PostUserMessage(1)
	m.PostSystemMessage("a")
	i := &invoker{}
	m.RegisterHandlers(i, nil)
	m.Start()
	m.Start()
	if diff := cmp.Diff([]string{"system a", "user 1"}, settleMailbox(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMailbox_LosesAndDoublesNothingOfManySenders(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 2000
	i := &invoker{}
	m := newMailbox(t, i)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for n := range each {
				m.PostUserMessage([2]int{s, n})
			}
		})
	}
	wg.Wait()
	got := settleMailbox(m)
	next := make(map[int]int)
	for _, text := range got {
		var s, n int
		if _, err := fmt.Sscanf(text, "user [%d %d]", &s, &n); err != nil {
			t.Fatal(err)
		}
		if n != next[s] {
			t.Fatalf("sender %d: message %d came when %d was due", s, n, next[s])
		}
		next[s]++
	}
	if len(got) != senders*each {
		t.Errorf("%d messages came, want %d", len(got), senders*each)
	}
}

func TestRing_IsAQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var want []any
		for n := range rapid.IntRange(1, 400).Draw(t, "moves") {
			if len(want) > 0 && rapid.IntRange(0, 4).Draw(t, "pop") < 2 {
				if got := r.pop(); got != want[0] {
					t.Fatalf("%v came out, want %v", got, want[0])
				}
				want = want[1:]
			} else {
				r.push(n)
				want = append(want, n)
			}
			if r.count != len(want) || r.empty() != (len(want) == 0) {
				t.Fatalf("it counts %d, want %d", r.count, len(want))
			}
		}
	})
}
