package engine

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Times and sizes of giving memory back.
const (
	quietEvery = 10 * time.Second
	// A process is quiet if the collector has not run for an interval. It has something to give back if that is more than so
	// many bytes, and more than a part of what it needs.
	givenAtLeast = 16 << 20
	givenPart    = 4
)

// heap is what the runtime says of the memory.
type heap struct {
	cycles uint64 // of the collector, so far
	live   uint64 // what was reachable at its last run
	held   uint64 // of the machine's
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	n := func(i int) uint64 { return samples[i].Value.Uint64() }
	return heap{cycles: n(0), live: n(1), held: n(2) + n(3) + n(4)}
}

// gives tells whether memory should be given back: after a burst of work the heap stays at twice what the burst needed for
// as long as nothing happens, as the collector runs only for those who allocate.
func (h heap) gives(before heap) bool {
	return h.cycles == before.cycles && h.held > h.live+max(givenAtLeast, h.live/givenPart)
}

// giveBack gives memory back to the machine in quiet moments, until done is closed.
func giveBack(done <-chan struct{}) {
	look := time.NewTicker(quietEvery)
	defer look.Stop()
	last := readHeap()
	for {
		select {
		case <-look.C:
			now := readHeap()
			if now.gives(last) {
				debug.FreeOSMemory()
				now = readHeap()
			}
			last = now
		case <-done:
			return
		}
	}
}
