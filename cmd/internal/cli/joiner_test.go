package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestJoiner(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events func(*history)
		joined string // by run logs
		live   string // by run logs -f
	}{
		{"whole lines", func(h *history) {
			h.output("j", "s", "stdout", "a", false, 0).output("j", "s", "stderr", "b", false, 2)
		}, "a\nb\n", "a\nb\n"},
		{"pieces become a line", func(h *history) {
			h.output("j", "s", "stdout", "a", true, 0).output("j", "s", "stdout", "b", true, 1).output("j", "s", "stdout", "c", false, 2)
		}, "abc\n", "abc\n"},
		{"the other stream comes between", func(h *history) {
			h.output("j", "s", "stdout", "a", true, 0).output("j", "s", "stderr", "x", false, 1).output("j", "s", "stdout", "b", false, 3)
		}, "x\nab\n", "a\nx\nb\n"},
		{"a step ends without a line end", func(h *history) {
			h.output("j", "s", "stdout", "a", true, 0).output("j", "t", "stdout", "b", false, 0)
		}, "a\nb\n", "a\nb\n"},
		{"a dispatch ends without a line end, and the step runs again", func(h *history) {
			h.output("j", "s", "stdout", "a", true, 0).output("j", "s", "stdout", "b", false, 0)
			h.events[1].DispatchId = proto.String("another")
		}, "a\nb\n", "a\nb\n"},
		{"everything ends without a line end", func(h *history) {
			h.output("j", "s", "stdout", "a", true, 0)
		}, "a\n", "a\n"},
		{"an empty line", func(h *history) {
			h.output("j", "s", "stdout", "", false, 0)
		}, "\n", "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, follow := range []bool{false, true} {
				h, host := &history{run: "r"}, newTestHost(t)
				tt.events(h)
				p := (&app{host: host.Host}).logPrinter(follow)
				for _, e := range h.events {
					if err := p.event(e); err != nil {
						t.Fatal(err)
					}
				}
				if err := p.close(); err != nil {
					t.Fatal(err)
				}
				want := tt.joined
				if follow {
					want = tt.live
				}
				if host.out.String() != want {
					t.Errorf("with -f %t: got %q, want %q", follow, host.out.String(), want)
				}
			}
		})
	}
}

// A line above the limit goes out as it comes, and is one line all the same.
func TestJoiner_ALongLineStaysOneLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		events func(*history)
		want   string
	}{
		{"it ends", func(h *history) {
			h.output("j", "s", "stdout", "123456", true, 0).output("j", "s", "stdout", "789", true, 0).output("j", "s", "stdout", "0", false, 0).
				output("j", "s", "stdout", "next", false, 0)
		}, "1234567890\nnext\n"},
		{"it never ends", func(h *history) {
			h.output("j", "s", "stdout", "123456", true, 0).output("j", "s", "stdout", "789", true, 0)
		}, "123456789\n"},
		{"a line of the other stream waits for its end", func(h *history) {
			h.output("j", "s", "stdout", "123456", true, 0).output("j", "s", "stderr", "x", false, 0).output("j", "s", "stdout", "7", false, 0)
		}, "1234567\nx\n"},
		{"so much of the other stream that it cannot wait", func(h *history) {
			h.output("j", "s", "stdout", "123456", true, 0).output("j", "s", "stderr", "xxxxxx", false, 0).output("j", "s", "stdout", "7", false, 0)
		}, "123456\nxxxxxx\n7\n"},
		{"two long ones at once", func(h *history) {
			h.output("j", "s", "stdout", "123456", true, 0).output("j", "s", "stderr", "abcdef", true, 0).output("j", "s", "stdout", "7", false, 0).
				output("j", "s", "stderr", "g", false, 0)
		}, "123456\nabcdef\n7\ng\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			j := newJoiner(5, func(_ outputKey, text string) error {
				out.WriteString(text + "\n")
				return nil
			})
			j.long = func(text string) error {
				out.WriteString(text)
				return nil
			}
			h := &history{run: "r"}
			tt.events(h)
			for _, e := range h.events {
				if err := j.add(e); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.endAll(); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}

func TestJoiner_LosesNothingAndKeepsTheOrderOfAStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		got, want := map[string]string{}, map[string]string{}
		j := newJoiner(8, func(key outputKey, text string) error {
			got[key.stream] += text
			return nil
		})
		if rapid.Bool().Draw(t, "long lines go through") {
			j.long = func(text string) error {
				got[j.giant.stream] += text
				return nil
			}
		}
		h := &history{run: "r"}
		for range rapid.IntRange(0, 40).Draw(t, "pieces") {
			stream := rapid.SampledFrom([]string{"stdout", "stderr"}).Draw(t, "stream")
			text := rapid.StringMatching("[a-c]{0,5}").Draw(t, "text")
			h.output("j", "s", stream, text, rapid.Bool().Draw(t, "partial"), 0)
			want[stream] += text
		}
		for _, e := range h.events {
			if err := j.add(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.endAll(); err != nil {
			t.Fatal(err)
		}
		for _, stream := range []string{"stdout", "stderr"} {
			if got[stream] != want[stream] {
				t.Fatalf("%s: got %q, want %q", stream, got[stream], want[stream])
			}
		}
	})
}
