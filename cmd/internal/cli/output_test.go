package cli

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func TestSafeText(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"plain text stays", "héllo wörld 漢字 🐊\tx", "héllo wörld 漢字 🐊\tx"},
		{"colours are dropped", "\x1b[1;31mred\x1b[0m and \x1b[38;5;9mmore\x1b[m", "red and more"},
		{"a window title is shown, not set", "\x1b]0;owned\x07", `\x1b]0;owned\x07`},
		{"a cursor movement is shown", "\x1b[2J\x1b[1;1H", `\x1b[2J\x1b[1;1H`},
		{"a return cannot hide what stands before it", "rm -rf\rls", `rm -rf\x0dls`},
		{"backspace", "a\bb", `a\x08b`},
		{"C1 controls, as runes", "a\u009bb", `a\x9bb`},
		{"invalid UTF-8", "a\xff\xc3b", `a\xff\xc3b`},
		{"the direction of writing", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"line separators", "a\u2028b", `a\u2028b`},
		{"a sequence that never ends", "\x1b[1;3", `\x1b[1;3`},
		{"NUL and DEL", "\x00\x7f", `\x00\x7f`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := safeText(tt.in); got != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestSafeText_NeverHoldsAControlCharacter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringMatching(`(\x1b\[[0-9;]{0,4}[a-zA-Z]|\x1b|[a-z\r\n]){0,20}`)).Draw(t, "in")
		for _, r := range safeText(in) {
			if r != '\t' && r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Fatalf("%q became %q", in, safeText(in))
			}
		}
		if line := oneLine(in); strings.ContainsAny(line, "\n\t") {
			t.Fatalf("%q became the line %q", in, line)
		}
	})
}

func TestFit_IsNeverWiderThanAskedFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, width := rapid.String().Draw(t, "s"), rapid.IntRange(0, 40).Draw(t, "width")
		got := fit(s, width)
		if displayWidth(got) > width {
			t.Fatalf("%q is %d wide", got, displayWidth(got))
		}
		if displayWidth(s) <= width && got != s {
			t.Fatalf("%q fits, and became %q", s, got)
		}
	})
}

func TestTable_ColumnsLineUpInColourToo(t *testing.T) {
	t.Parallel()
	tab := table{columns: []string{"NAME", "STATUS", "X"}, paint: paintStatus(1)}
	tab.add("漢字", "running", "1")
	tab.add("a\x1b[31m\nb", "failed", "2")
	for _, color := range []bool{false, true} {
		var b strings.Builder
		if err := tab.write(&b, color); err != nil {
			t.Fatal(err)
		}
		plain := safeText(b.String())
		want := "NAME  STATUS   X\n漢字  running  1\na b   failed   2\n"
		if plain != want {
			t.Errorf("with color %t:\n%s", color, plain)
		}
		if strings.Contains(b.String(), "\x1b") != color {
			t.Errorf("with color %t: %q", color, b.String())
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	now := testTime(0)
	tests := []struct{ name, got, want string }{
		{"age below a second", age(900 * time.Millisecond), "<1s"},
		{"age in seconds", age(5900 * time.Millisecond), "5s"},
		{"age in minutes", age(3*time.Minute + 59*time.Second), "3m"},
		{"age in hours", age(time.Hour + 5*time.Minute), "1h5m"},
		{"age in whole hours", age(2 * time.Hour), "2h"},
		{"age in days", age(51 * time.Hour), "2d3h"},
		{"elapsed", elapsed(5240 * time.Millisecond), "5.2s"},
		{"elapsed does not round up to a minute", elapsed(59999 * time.Millisecond), "59.9s"},
		{"elapsed minutes", elapsed(187 * time.Second), "3m07s"},
		{"elapsed hours", elapsed(65 * time.Minute), "1h05m"},
		{"elapsed by clocks that differ", elapsed(-time.Second), "0.0s"},
		{"ago", ago(now, messages.Time(now.Add(-90*time.Second))), "1m ago"},
		{"never", ago(now, nil), "-"},
		{"until", until(now, messages.Time(now.Add(49*time.Hour))), "in 2d1h"},
		{"expired", until(now, messages.Time(now.Add(-time.Minute))), "1m ago"},
		{"a span that goes on", span(now, messages.Time(now.Add(-time.Minute)), nil), "1m00s"},
		{"a span that is over", span(now, messages.Time(now.Add(-time.Minute)), messages.Time(now.Add(-50*time.Second))), "10.0s"},
		{"a span that has not begun", span(now, nil, nil), "-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.got != tt.want {
				t.Errorf("got %s, want %s", tt.got, tt.want)
			}
		})
	}
}
