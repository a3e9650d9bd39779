package actors

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

const (
	// treePage is about how many bytes of JSON one page of the tree has, well within a frame.
	treePage = messages.MaxFrame / 2
	// treeItem is about how many of them one actor takes, beside its PID.
	treeItem = 300
	// treesKept is how many trees that do not fit on a page are kept for their further pages, and treeFor for how long.
	treesKept = 4
	treeFor   = 30 * time.Second
)

// actorTree shows the actors, without asking any of them. Steps that wait, and runs that do nothing but wait, take no memory:
// they are shown as they will be when somebody speaks to them.
func (sys *System) actorTree(p *messages.ActorTreeParams) (proto.Message, error) {
	if p.GetCursor() != "" {
		return sys.trees.page(p.GetCursor(), time.Now())
	}
	if kind := p.GetKind(); kind != "" && !slices.Contains(actorKinds(), kind) {
		return nil, messages.Faultf(messages.CodeInvalid, "there is no kind of actor %s: they are %s", kind, strings.Join(actorKinds(), ", "))
	}
	items, err := sys.treeOf(p)
	if err != nil {
		return nil, err
	}
	return sys.trees.first(items, time.Now()), nil
}

// actorKinds are the kinds of actors, the root's first.
func actorKinds() []string {
	return []string{kindRoot, kindScheduler, kindRouter, kindWorker, kindToken, kindRun, kindStep, kindLease, kindSession}
}

func (sys *System) treeOf(p *messages.ActorTreeParams) ([]*messages.ActorItem, error) {
	below := p.GetBelow()
	if below != "" {
		var err error
		if below, _, err = sys.findPID(below); err != nil {
			return nil, err
		}
	}
	var items []*messages.ActorItem
	wanted := func(kind, id string) bool {
		return (p.GetKind() == "" || kind == p.GetKind()) && (below == "" || id == below || strings.HasPrefix(id, below) && id[len(below)] == '/')
	}
	add := func(item *messages.ActorItem) {
		if (p.GetState() == "" || item.GetState() == p.GetState()) && item.GetMailbox() >= p.GetMinMailbox() {
			items = append(items, item)
		}
	}
	sys.byPID.Range(func(id, i any) bool {
		if info := i.(*actorInfo); wanted(info.address.kind, id.(string)) {
			add(info.item())
		}
		return true
	})
	if p.GetMinMailbox() <= 0 {
		err := sys.resting(func(id, kind, state string, since *timestamppb.Timestamp) {
			if _, lives := sys.byPID.Load(id); !lives && wanted(kind, id) {
				add(&messages.ActorItem{Pid: id, Kind: kind, State: state, StartedAt: since})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(items, func(a, b *messages.ActorItem) int { return comparePIDs(a.GetPid(), b.GetPid()) })
	// One that rested when the records were read may have started meanwhile, and so may be there twice.
	return slices.CompactFunc(items, func(a, b *messages.ActorItem) bool { return a.GetPid() == b.GetPid() }), nil
}

// resting calls fn for each step that waits in line and for its run, as far as the journal knows.
func (sys *System) resting(fn func(id, kind, state string, since *timestamppb.Timestamp)) error {
	runs := sys.runsPID() + "/"
	last := ""
	return sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(_ persistence.Record, m proto.Message) bool {
		w := m.(*messages.PendingRecord)
		if w.GetRunId() != last {
			last = w.GetRunId()
			fn(runs+runAddress(last).id, kindRun, string(messages.RunRunning), w.GetQueuedAt())
		}
		fn(runs+stepAddress(w.GetRunId(), w.GetJob(), w.GetStep()).id, kindStep, string(messages.StepQueued), w.GetQueuedAt())
		return true
	})
}

// runsPID is the PID of the router that runs are below.
func (sys *System) runsPID() string {
	if i, ok := sys.refs.Load(routerOf(kindRun)); ok {
		return i.(*actorInfo).pid.GetId()
	}
	return ""
}

// comparePIDs orders PIDs as paths: what is below an actor comes right behind it.
func comparePIDs(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// treeBook keeps trees of which not all pages have been read.
type treeBook struct {
	mu    sync.Mutex
	next  uint64
	trees map[uint64]tree
}

type tree struct {
	items []*messages.ActorItem
	until time.Time
}

// first is the first page of a tree, which is all of most.
func (b *treeBook) first(items []*messages.ActorItem, now time.Time) *messages.ActorTreeResult {
	n := pageOf(items)
	result := &messages.ActorTreeResult{Items: items[:n], Count: int32(n)}
	if n == len(items) {
		return result
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trees == nil {
		b.trees = make(map[uint64]tree)
	}
	b.next++
	oldest := b.next
	for id, t := range b.trees {
		if now.After(t.until) {
			delete(b.trees, id)
		} else if id < oldest {
			oldest = id
		}
	}
	if len(b.trees) >= treesKept {
		delete(b.trees, oldest)
	}
	b.trees[b.next] = tree{items, now.Add(treeFor)}
	cursor := strconv.FormatUint(b.next, 10) + "." + strconv.Itoa(n)
	result.Cursor = &cursor
	return result
}

// page is a further page of a tree. The last one lets go of it.
func (b *treeBook) page(cursor string, now time.Time) (*messages.ActorTreeResult, error) {
	name, place, _ := strings.Cut(cursor, ".")
	id, errID := strconv.ParseUint(name, 10, 64)
	from, errFrom := strconv.Atoi(place)
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.trees[id]
	if errID != nil || errFrom != nil || !ok || from < 0 || from > len(t.items) || now.After(t.until) {
		return nil, messages.Faultf(messages.CodeInvalid, "the cursor %q is none, or its tree is too old: ask for the first page again", cursor)
	}
	items := t.items[from:]
	n := pageOf(items)
	result := &messages.ActorTreeResult{Items: items[:n], Count: int32(n)}
	if n == len(items) {
		delete(b.trees, id)
		return result, nil
	}
	t.until = now.Add(treeFor)
	b.trees[id] = t
	next := name + "." + strconv.Itoa(from+n)
	result.Cursor = &next
	return result, nil
}

// pageOf is how many of the items fit on a page.
func pageOf(items []*messages.ActorItem) int {
	size := 0
	for i, item := range items {
		if size += len(item.GetPid()) + treeItem; size > treePage && i > 0 {
			return i
		}
	}
	return len(items)
}
