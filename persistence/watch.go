package persistence

import "sync"

// WatchOutput implements [Journal].
func (s *Store) WatchOutput() *OutputWatch {
	return &OutputWatch{hub: &s.watchers, wake: make(chan struct{}, 1)}
}

// OutputWatch tells which of some dispatches have more output than before. It is safe for concurrent use.
type OutputWatch struct {
	hub  *watchers
	wake chan struct{} // one value, coalesced

	// The hub's lock guards what follows.
	watched map[string]struct{}
	grown   []string // since they were taken, each once
}

// Add begins to watch a dispatch. What was there before is not told.
func (w *OutputWatch) Add(dispatch string) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.watched == nil {
		w.watched = make(map[string]struct{})
	}
	w.watched[dispatch] = struct{}{}
	if w.hub.byDispatch == nil {
		w.hub.byDispatch = make(map[string][]*OutputWatch)
	}
	w.hub.drop(dispatch, w)
	w.hub.byDispatch[dispatch] = append(w.hub.byDispatch[dispatch], w)
}

// Remove ends the watch of a dispatch.
func (w *OutputWatch) Remove(dispatch string) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.watched, dispatch)
	w.hub.drop(dispatch, w)
}

// Grown returns a channel that gets a value, coalesced, after output of a watched dispatch has grown, and when the journal
// closes.
func (w *OutputWatch) Grown() <-chan struct{} { return w.wake }

// Take returns the watched dispatches whose output has grown since it was taken last.
func (w *OutputWatch) Take() []string {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	var grown []string
	for _, dispatch := range w.grown {
		if _, watched := w.watched[dispatch]; watched {
			grown = append(grown, dispatch)
		}
	}
	w.grown = nil
	return grown
}

// Close ends the watch of all dispatches.
func (w *OutputWatch) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	for dispatch := range w.watched {
		w.hub.drop(dispatch, w)
	}
	w.watched, w.grown = nil, nil
}

// watchers are the watches of one journal, by dispatch.
type watchers struct {
	mu         sync.Mutex
	byDispatch map[string][]*OutputWatch
}

// drop takes a watch off a dispatch: mu is held.
func (h *watchers) drop(dispatch string, w *OutputWatch) {
	list := h.byDispatch[dispatch]
	for i, other := range list {
		if other != w {
			continue
		}
		if len(list) == 1 {
			delete(h.byDispatch, dispatch)
		} else {
			h.byDispatch[dispatch] = append(list[:i:i], list[i+1:]...)
		}
		return
	}
}

func (h *watchers) notify(dispatch string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.byDispatch[dispatch] {
		seen := false
		for _, g := range w.grown {
			seen = seen || g == dispatch
		}
		if !seen {
			w.grown = append(w.grown, dispatch)
		}
		signal(w.wake)
	}
}

func (h *watchers) notifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.byDispatch {
		for _, w := range list {
			signal(w.wake)
		}
	}
}

// signal sends a value unless one is waiting already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
