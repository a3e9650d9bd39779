package cli

import (
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

func TestJoiner_LosesNothingAndKeepsTheOrderOfAStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		got, want := map[string]string{}, map[string]string{}
		j := newJoiner(8, func(key outputKey, text string) error {
			got[key.stream] += text
			return nil
		})
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
