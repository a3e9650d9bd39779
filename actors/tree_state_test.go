package actors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
)

func TestComparePIDs_OrdersByTheParts(t *testing.T) {
	t.Parallel()
	want := []string{"a", "a/b", "a/b/c", "a/b-c", "a/b.c", "a%2Fb", "a-", "a.b", "aa", "b"}
	slices.SortFunc(want, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, comparePIDs)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A tree that is too large for one page comes in several, of one moment, each of which fits into a frame in either coding.
func TestTreeBook_GivesALargeTreeInPagesThatFitAFrame(t *testing.T) {
	t.Parallel()
	var items []*messages.ActorItem
	for i := range 30_000 {
		name := "stepEnded"
		items = append(items, &messages.ActorItem{
			Pid: fmt.Sprintf("swampd/runs/0197a3cf-2222-7000-8000-%012d/job/step-%d", i/10, i%10), Kind: kindStep, State: "waiting_approval",
			Processed: 12345, LastMessage: &name, StartedAt: messages.Time(time.Unix(1, 1)), LastMessageAt: messages.Time(time.Unix(1, 1)),
		})
	}
	var b treeBook
	now := time.Unix(0, 0)
	page := b.first(items, now)
	seen := 0
	for pages := 1; ; pages++ {
		for _, coding := range []messages.Coding{messages.CodingProtobuf, messages.CodingJSON} {
			frame := &messages.Frame{Id: "1", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbActorTree, page)}}
			if data, err := messages.EncodeFrame(frame, coding); err != nil || len(data) > messages.MaxFrame {
				t.Fatalf("page %d has %d bytes as %v: %v", pages, len(data), coding, err)
			}
		}
		for _, item := range page.GetItems() {
			if item != items[seen] {
				t.Fatalf("item %d is %s", seen, item.GetPid())
			}
			seen++
		}
		if page.Cursor == nil {
			break
		}
		now = now.Add(treeFor - time.Second)
		var err error
		if page, err = b.page(page.GetCursor(), now); err != nil {
			t.Fatal(err)
		}
	}
	if seen != len(items) || len(b.trees) != 0 {
		t.Errorf("%d of %d items came, and %d trees are kept", seen, len(items), len(b.trees))
	}
	cursors := make([]string, treesKept+1)
	for i := range cursors {
		cursors[i] = b.first(items, now).GetCursor()
	}
	if _, err := b.page(cursors[0], now); codeOfError(err) != messages.CodeInvalid || len(b.trees) != treesKept {
		t.Errorf("%d trees are kept, and the first of %d gives %v", len(b.trees), len(cursors), err)
	}
	if _, err := b.page(cursors[1], now.Add(treeFor+1)); codeOfError(err) != messages.CodeInvalid {
		t.Errorf("a tree that is too old gives %v", err)
	}
}

func codeOfError(err error) messages.Code {
	if err == nil {
		return ""
	}
	return messages.CodeOf(err)
}

func TestTrail_KeepsTheLastOnesAndWhatIsInHand(t *testing.T) {
	t.Parallel()
	var tr trail
	if last, busy, count := tr.last(); last.kind != nil || busy || count != 0 || len(tr.all()) != 0 {
		t.Errorf("an empty trail has %v %t %d", last, busy, count)
	}
	for i := range 3 * trailKept {
		if i%2 == 0 {
			tr.take(wake{}, true)
		} else {
			tr.take(lookAgain{}, false)
		}
		if _, busy, _ := tr.last(); !busy {
			t.Fatal("what was taken is not in hand")
		}
		tr.done()
		want := "wake"
		if i%2 == 1 {
			want = "lookAgain"
		}
		if last, busy, count := tr.last(); last.name() != want || busy || count != uint64(i/2+1) {
			t.Fatalf("after %d: %s %t %d", i, last.name(), busy, count)
		}
		all := tr.all()
		if len(all) != min(i+1, trailKept) || all[len(all)-1].name() != want || cap(tr.taken) > trailKept {
			t.Fatalf("after %d: %d are kept in %d places, the last is %s", i, len(all), cap(tr.taken), all[len(all)-1].name())
		}
		if !slices.IsSortedFunc(all, func(a, b taken) int { return a.at().Compare(b.at()) }) {
			t.Fatal("they are not in the order of time")
		}
	}
}

// BenchmarkTrail is what a message costs an actor for being remembered.
func BenchmarkTrail(b *testing.B) {
	b.ReportAllocs()
	var tr trail
	for b.Loop() {
		tr.take(wake{}, true)
		tr.done()
	}
}

// BenchmarkActorTree is what the whole tree costs, all of its pages: it asks no actor anything.
func BenchmarkActorTree(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		for name, sys := range map[string]*System{"live": crowdedWith(b, n, 0), "resting": crowdedWith(b, 0, n)} {
			b.Run(fmt.Sprintf("%s=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					first, err := sys.actorTree(&messages.ActorTreeParams{Kind: kindStep})
					seen := 0
					for page := first; ; page, err = sys.actorTree(&messages.ActorTreeParams{Cursor: page.(*messages.ActorTreeResult).GetCursor()}) {
						if err != nil {
							b.Fatal(err)
						}
						frame := &messages.Frame{Id: "1", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbActorTree, page)}}
						if _, err := messages.EncodeFrame(frame, messages.CodingProtobuf); err != nil {
							b.Fatal(err)
						}
						seen += len(page.(*messages.ActorTreeResult).GetItems())
						if page.(*messages.ActorTreeResult).Cursor == nil {
							break
						}
					}
					if seen != n {
						b.Fatalf("%d actors, want %d", seen, n)
					}
				}
			})
		}
	}
}

// crowdedWith is a system with so many steps, live ones and resting ones.
func crowdedWith(b *testing.B, live, resting int) *System {
	b.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	sys := &System{journal: store}
	for i := range live {
		id := fmt.Sprintf("swampd/runs/0197a3cf-2222-7000-8000-%012d/job/step-%d", i/100, i%100)
		info := &actorInfo{address: address{kindStep, id}, pid: actor.NewPID("nonhost", id), started: time.Now()}
		info.received(wake{})
		info.state.Store("running")
		sys.byPID.Store(id, info)
	}
	for i := 0; i < resting; i += 500 {
		var c persistence.Commit
		for j := i; j < min(i+500, resting); j++ {
			run := fmt.Sprintf("0197a3cf-2222-7000-8000-%012d", j/100)
			queue := fmt.Sprintf("%s.%d.q1", run, j%100)
			body, err := proto.Marshal(&messages.PendingRecord{QueueId: queue, RunId: run, Job: "job", Step: fmt.Sprintf("step-%d", j%100), QueuedAt: messages.Time(time.Now())})
			if err != nil {
				b.Fatal(err)
			}
			c.Puts = append(c.Puts, persistence.Put{Kind: persistence.KindPending, ID: queue, State: "waiting", Body: body})
		}
		if _, err := store.Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	return sys
}
