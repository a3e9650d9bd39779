package engine

import "testing"

func TestHeap_GivesBackInQuietMomentsOnly(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	tests := []struct {
		name string
		now  heap
		want bool
	}{
		{"quiet after a burst", heap{cycles: 7, live: 40 * mib, held: 100 * mib}, true},
		{"at work", heap{cycles: 8, live: 40 * mib, held: 100 * mib}, false},
		{"quiet with nothing to give", heap{cycles: 7, live: 40 * mib, held: 50 * mib}, false},
		{"quiet with little of much to give", heap{cycles: 7, live: 400 * mib, held: 450 * mib}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.now.gives(heap{cycles: 7}); got != tt.want {
				t.Errorf("it gives back: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestHeap_CanBeRead(t *testing.T) {
	t.Parallel()
	if h := readHeap(); h.held == 0 || h.held < h.live/2 {
		t.Errorf("the heap is %+v", h)
	}
}
