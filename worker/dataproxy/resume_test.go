package dataproxy

import (
	"bytes"
	"net/http"
	"testing"
)

func TestResume_ABodyThatBreaksOffComesWhole(t *testing.T) {
	t.Parallel()
	body := bytesOf(1 << 20)
	tests := []struct {
		name   string
		ranges string
		want   []byte
	}{
		{"all of it", "", body},
		{"a part", "bytes=1000-800000", body[1000:800001]},
		{"its end", "bytes=-500000", body[len(body)-500000:]},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, func(p *plane) {
				p.artifacts["x"] = [][]byte{body}
				p.cut = func(n int) int { return []int{0, 100_000, 1, 300_000, 0}[min(n, 4)] }
				p.before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
					if n == 3 {
						say(w, http.StatusServiceUnavailable, "not_ready")
					}
					return n == 3
				}
			})
			s := newStep(t, p)
			var header []string
			if tt.ranges != "" {
				header = []string{"Range", tt.ranges}
			}
			a := s.do(t, http.MethodGet, "/v1/data/x", nil, header...)
			if a.err != nil || !bytes.Equal(a.body, tt.want) {
				t.Errorf("%d bytes of %d: %v", len(a.body), len(tt.want), a.err)
			}
			if n := p.count(); n < 4 {
				t.Errorf("only %d requests", n)
			}
		})
	}
}

func TestResume_StaysWithItsVersion(t *testing.T) {
	t.Parallel()
	old, grown := bytesOf(1<<20), append(bytesOf(1<<20), "and more"...)
	tests := []struct {
		name string
		then [][]byte
	}{
		{"a newer one came", [][]byte{old, []byte("new")}},
		{"it was still open, and grew", [][]byte{grown}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, func(p *plane) {
				p.artifacts["x"] = [][]byte{old}
				p.cut = func(n int) int { return []int{0, 200_000, 0}[min(n, 2)] }
				p.before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
					if n == 2 {
						p.mu.Lock()
						p.artifacts["x"] = tt.then
						p.mu.Unlock()
					}
					return false
				}
			})
			s := newStep(t, p)
			if a := s.do(t, http.MethodGet, "/v1/data/x", nil); a.err != nil || !bytes.Equal(a.body, old) {
				t.Errorf("%d bytes of %d: %v", len(a.body), len(old), a.err)
			}
		})
	}
}

func TestResume_OfWhatIsGoneIsAnErrorAndNotAnEnd(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(p *plane) {
		p.artifacts["x"] = [][]byte{bytesOf(1 << 20)}
		p.cut = func(n int) int { return 200_000 }
		p.before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n == 2 {
				p.mu.Lock()
				delete(p.artifacts, "x")
				p.mu.Unlock()
			}
			return false
		}
	})
	s := newStep(t, p)
	if a := s.do(t, http.MethodGet, "/v1/data/x", nil); a.err == nil || len(a.body) > 200_000 {
		t.Errorf("%d bytes and no error", len(a.body))
	}
}
