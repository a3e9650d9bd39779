package memstore

import (
	"bytes"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/swampd/swampd/persistence"
)

// outputLog keeps the chunks of each dispatch. A log only grows, so that a snapshot shares what there is.
type outputLog struct {
	mu     sync.Mutex
	logs   map[string][]persistence.Chunk
	fenced bool
}

var _ persistence.OutputLog = (*outputLog)(nil)

func newOutputLog(from Snapshot) *outputLog {
	logs := make(map[string][]persistence.Chunk, len(from.output))
	for dispatch, log := range from.output {
		logs[dispatch] = slices.Clip(log) // its next append must not write where another store's does
	}
	return &outputLog{logs: logs}
}

func end(log []persistence.Chunk) uint64 {
	if len(log) == 0 {
		return 0
	}
	last := log[len(log)-1]
	return last.Offset + uint64(len(last.Data))
}

func (o *outputLog) Append(dispatch string, chunks []persistence.Chunk, bound uint64) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fenced {
		return false, persistence.ErrClosed
	}
	log := o.logs[dispatch]
	before := len(log)
	for _, chunk := range chunks {
		chunk, ok := persistence.CutChunk(chunk, end(log))
		if !ok {
			continue
		}
		if chunk.Offset+uint64(len(chunk.Data)) > bound {
			return false, persistence.ErrNoSpace
		}
		chunk.Data = bytes.Clone(chunk.Data)
		log = append(log, chunk)
	}
	if len(log) == before {
		return false, nil
	}
	o.logs[dispatch] = log
	return true, nil
}

func (o *outputLog) Read(dispatch string, from uint64, limit int) ([]persistence.Chunk, error) {
	o.mu.Lock()
	log := o.logs[dispatch]
	o.mu.Unlock()
	first := sort.Search(len(log), func(i int) bool { return end(log[:i+1]) > from })
	var chunks []persistence.Chunk
	for size := 0; first < len(log) && size < limit; first++ {
		chunk, _ := persistence.CutChunk(log[first], from)
		size += len(chunk.Data)
		chunks = append(chunks, chunk)
	}
	return chunks, nil
}

func (o *outputLog) Release(string) error { return nil }

func (o *outputLog) List() ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.logs)), nil
}

func (o *outputLog) Remove(dispatch string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fenced {
		return persistence.ErrClosed
	}
	delete(o.logs, dispatch)
	return nil
}

func (o *outputLog) Close() error { return nil }

func (o *outputLog) snapshot(fence bool) map[string][]persistence.Chunk {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fenced = o.fenced || fence
	return maps.Clone(o.logs)
}
