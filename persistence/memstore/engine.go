package memstore

import (
	"hash/maphash"
	"math"
	"sync"

	"github.com/swampd/swampd/persistence"
)

// engine is the persistence.Engine over the tree.
type engine struct {
	options Options
	seed    maphash.Seed

	mu     sync.Mutex
	root   *node
	past   []*node // roots before the last batches, newest last, at most options.Remember
	fenced bool
	space  persistence.Space
}

var _ persistence.Engine = (*engine)(nil)

func newEngine(options Options, from Snapshot) *engine {
	return &engine{
		options: options, seed: maphash.MakeSeed(), root: from.root,
		space: persistence.Space{Free: math.MaxUint64},
	}
}

func (e *engine) View(fn func(r persistence.Reader) error) error {
	e.mu.Lock()
	root := e.root
	e.mu.Unlock()
	return fn(reader{root})
}

// Apply runs the hooks outside of the lock, so that they may use the store and even crash it.
func (e *engine) Apply(b *persistence.Batch) error {
	if e.options.Before != nil {
		if err := e.options.Before(b); err != nil {
			return err
		}
	}
	if err := e.apply(b); err != nil {
		return err
	}
	if e.options.After != nil {
		return e.options.After(b)
	}
	return nil
}

func (e *engine) apply(b *persistence.Batch) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fenced {
		return persistence.ErrClosed
	}
	if e.options.Remember > 0 {
		if len(e.past) == e.options.Remember {
			e.past = append(e.past[:0], e.past[1:]...)
		}
		e.past = append(e.past, e.root)
	}
	for _, entry := range b.Entries {
		if entry.Delete {
			if _, there := e.root.get(entry.Key); there {
				e.root = e.root.remove(entry.Key)
			}
		} else {
			e.root = e.root.put(e.seed, entry.Key, entry.Value)
		}
	}
	return nil
}

func (e *engine) Limits() persistence.Limits {
	return persistence.Limits{Bytes: 4 << 20, Entries: 1 << 16}
}

func (e *engine) Space() persistence.Space {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.space
}

func (e *engine) setSpace(space persistence.Space) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.space = space
}

func (e *engine) snapshot(fence bool) (root *node, past []*node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fenced = e.fenced || fence
	return e.root, append([]*node(nil), e.past...)
}

func (e *engine) Close() error { return nil }

type reader struct{ root *node }

func (r reader) Get(key []byte) ([]byte, error) {
	value, ok := r.root.get(key)
	if !ok {
		return nil, persistence.ErrNotFound
	}
	return value, nil
}

func (r reader) Has(key []byte) (bool, error) {
	_, ok := r.root.get(key)
	return ok, nil
}

func (r reader) Scan(from, to []byte, back bool, fn func(key, value []byte) bool) error {
	r.root.walk(from, to, back, fn)
	return nil
}
