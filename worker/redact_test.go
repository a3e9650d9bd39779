package worker

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedactor(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef"
	tests := []struct {
		name   string
		writes []string
		want   []string // after each write, and at the end
	}{
		{"ordinary text passes", []string{"hello\n"}, []string{"hello\n", ""}},
		{"a secret is masked", []string{"a " + secret + " b"}, []string{"a *** b", ""}},
		{"two secrets are masked", []string{secret + secret}, []string{"******", ""}},
		{"the name of the token passes", []string{"gpu-1." + secret}, []string{"gpu-1.***", ""}},
		{"a secret in two writes is masked", []string{"a 01234567", "89abcdef b"}, []string{"a ", "*** b", ""}},
		{"a secret in many writes is masked", []string{"0123456789", "abc", "de", "f"}, []string{"", "", "", "***", ""}},
		{"its first bytes may have passed", []string{"a 012", "3456789abcdef b"}, []string{"a 012", "*** b", ""}},
		{"byte by byte", strings.Split(secret, ""), []string{"0", "1", "2", "", "", "", "", "", "", "", "", "", "", "", "", "***", ""}},
		{"what only began like one passes later", []string{"a 01234", "x"}, []string{"a ", "01234x", ""}},
		{"what only began like one passes at the end", []string{"a 01234"}, []string{"a ", "01234"}},
		{"a beginning within a beginning", []string{"01230123", "456789abcdef."}, []string{"0123", "***.", ""}},
		{"a line that is cut", []string{secret[:8] + "\n", secret[8:]}, []string{"01234567\n", "89abcdef", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := redactor{secrets: newSecrets(secret)}
			var got []string
			for _, w := range tt.writes {
				got = append(got, string(r.filter([]byte(w))))
			}
			got = append(got, string(r.finish()))
			if strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRedactor_ShortSecretsAreNotMasked(t *testing.T) {
	t.Parallel()
	r := redactor{secrets: newSecrets("", "true", "1234567")}
	if got := string(r.filter([]byte("true 1234567"))); got != "true 1234567" {
		t.Errorf("got %q", got)
	}
	if got := newSecrets("12345678").clean("a 12345678 b 12345678"); got != "a *** b ***" {
		t.Errorf("got %q", got)
	}
}

// TestRedactor_Property compares with masking the whole text at once: however it is cut, no more of a secret gets out
// than the few bytes that may pass before it is known to be one, and nothing else is changed.
func TestRedactor_Property(t *testing.T) {
	t.Parallel()
	secretsOf := []string{"aabaabaabaac", "abababababac"}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom(append([]string{"a", "b", "c", "aab", "ababab", "\n", ""}, secretsOf...)), 0, 20).Draw(t, "parts")
		text := []byte(strings.Join(parts, ""))
		s := newSecrets(secretsOf...)
		r := redactor{secrets: s}
		var out []byte
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			p := bytes.Clone(rest[:n])
			out = append(out, r.filter(p)...)
			for i := range p {
				p[i] = '!' // the writer may use its buffer again
			}
			rest = rest[n:]
		}
		out = append(out, r.finish()...)
		for _, secret := range secretsOf {
			if bytes.Contains(out, []byte(secret)) {
				t.Fatalf("%q of %q holds a secret", out, text)
			}
		}
		if len(parts) > 0 && !bytes.Contains(out, []byte(redactedText)) && !bytes.Equal(out, text) {
			t.Fatalf("%q became %q without a mask", text, out)
		}
		whole := redactor{secrets: s}
		masked := append(bytes.Clone(whole.filter(text)), whole.finish()...)
		if bytes.Count(masked, []byte(redactedText)) != bytes.Count(out, []byte(redactedText)) {
			t.Fatalf("%q became %q in pieces and %q at once", text, out, masked)
		}
	})
}
