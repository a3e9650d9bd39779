package testkit

import (
	"hash/fnv"
	"io"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
)

// orderMost is how long an actor waits at most before it takes a command, in an ordered fleet.
const orderMost = 2 * time.Millisecond

// withOrder has each actor wait before each command until an instant of its own, which follows from a name and from what it
// is about to do. So who comes first, where several things happen at once, does not depend on the scheduler.
func withOrder(name string) Option {
	var mu sync.Mutex
	seen := make(map[uint64]uint64)
	hook := WithHook(func(p actors.Point) {
		if p.Stage == decidedStage {
			return
		}
		h := fnv.New64a()
		for _, word := range []string{name, p.Stage, p.Kind, p.ID, p.Command} {
			_, _ = io.WriteString(h, word+"\x00") // it never fails
		}
		key := h.Sum64()
		mu.Lock()
		seen[key]++
		n := seen[key]
		mu.Unlock()
		key ^= n * 0x9e3779b97f4a7c15
		key ^= key >> 29
		key *= 0xbf58476d1ce4e5b9
		time.Sleep(time.Duration((key ^ key>>32) % uint64(orderMost)))
	})
	return func(s *settings) {
		hook(s)
		s.jitter = true
	}
}
