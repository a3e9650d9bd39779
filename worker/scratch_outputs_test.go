package worker

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOutputs_Language(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   string
		want map[string]string
		err  string
	}{
		{name: "nothing", in: "", want: map[string]string{}},
		{name: "empty lines", in: "\n\r\n\n", want: map[string]string{}},
		{name: "a value", in: "a=1\n", want: map[string]string{"a": "1"}},
		{name: "a last line without an end", in: "a=1\nb=2", want: map[string]string{"a": "1", "b": "2"}},
		{name: "an empty value", in: "a=\n", want: map[string]string{"a": ""}},
		{name: "everything behind the first equals sign", in: "a=b=c <<d ", want: map[string]string{"a": "b=c <<d "}},
		{name: "a carriage return", in: "a=1\r\n", want: map[string]string{"a": "1"}},
		{name: "the last one wins", in: "a=1\na=2\n", want: map[string]string{"a": "2"}},
		{name: "several lines", in: "a<<EOF\none\n\n two=2\nEOF\nb=1\n", want: map[string]string{"a": "one\n\n two=2", "b": "1"}},
		{name: "no lines", in: "a<<EOF\nEOF\n", want: map[string]string{"a": ""}},
		{name: "one empty line", in: "a<<EOF\n\nEOF\n", want: map[string]string{"a": ""}},
		{name: "two empty lines", in: "a<<EOF\n\n\nEOF", want: map[string]string{"a": "\n"}},
		{name: "any word", in: "a<<x=y z\nEOF\nx=y z\n", want: map[string]string{"a": "EOF"}},
		{name: "a line that only begins with the word", in: "a<<E\nE \nE\n", want: map[string]string{"a": "E "}},
		{name: "names with dots, dashes and digits", in: "a.b-c_9=1", want: map[string]string{"a.b-c_9": "1"}},
		{name: "a largest value", in: "a=" + strings.Repeat("x", MaxOutputValueBytes), want: map[string]string{"a": strings.Repeat("x", MaxOutputValueBytes)}},

		{name: "a line without a sign", in: "\na=1\nhello", err: "line 3 of $SWAMP_OUTPUT is neither name=value nor name<<WORD"},
		{name: "no name", in: "=1", err: `line 1 of $SWAMP_OUTPUT: "" is no name of an output (letters, digits, '_', '-' and '.', at most 128)`},
		{name: "a space before the sign", in: "a =1", err: `line 1 of $SWAMP_OUTPUT: "a " is no name of an output (letters, digits, '_', '-' and '.', at most 128)`},
		{name: "a digit first", in: "1=1", err: `line 1 of $SWAMP_OUTPUT: "1" is no name of an output (letters, digits, '_', '-' and '.', at most 128)`},
		{name: "no word", in: "a<<\nx\n", err: "line 1 of $SWAMP_OUTPUT: no word follows '<<'"},
		{name: "no end", in: "b=1\na<<EOF\nx\n", err: "line 2 of $SWAMP_OUTPUT: no line \"EOF\" ends the value"},
		{name: "no text", in: "a=\xff", err: "line 1 of $SWAMP_OUTPUT: the value of output 'a' is not UTF-8"},
		{
			name: "a value that is too large", in: "a=" + strings.Repeat("x", MaxOutputValueBytes+1),
			err: "line 1 of $SWAMP_OUTPUT: the value of output 'a' holds more than 65536 bytes",
		},
		{
			name: "several lines that are too large", in: "a<<E\n" + strings.Repeat("x\n", MaxOutputValueBytes) + "E\n",
			err: "line 1 of $SWAMP_OUTPUT: the value of output 'a' holds more than 65536 bytes",
		},
		{name: "too much as a whole", in: strings.Repeat("\n", MaxOutputBytes+1), err: "$SWAMP_OUTPUT holds more than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseOutputs([]byte(tt.in))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			if tooLarge := strings.Contains(text, "holds more than"); err != nil && tooLarge != (outputsCode(err) == CodeOutputTooLarge) {
				t.Errorf("code %s", outputsCode(err))
			}
		})
	}
}

func TestOutputs_WhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOfN(
			rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_.-]{0,20}`),
			rapid.StringMatching(`([^\r]|\n)*`), 0, 5).Draw(t, "outputs")
		var file strings.Builder
		for name, value := range want {
			if !strings.Contains(value, "\n") && rapid.Bool().Draw(t, "short") {
				fmt.Fprintf(&file, "%s=%s\n", name, value)
				continue
			}
			word := "END"
			for strings.Contains("\n"+value+"\n", "\n"+word+"\n") {
				word += "D"
			}
			fmt.Fprintf(&file, "%s<<%s\n%s\n%s\n", name, word, value, word)
		}
		got, err := parseOutputs([]byte(file.String()))
		if err != nil {
			t.Fatalf("%q: %v", file.String(), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("outputs (-want +got):\n%s", diff)
		}
	})
}

func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{"a=1\n", "a<<E\nx\nE\n", "<<", "a<<E", "=\n", "a=\xff\n", "a<<=\n=\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		outputs, err := parseOutputs(data)
		if (outputs == nil) != (err != nil) {
			t.Fatalf("outputs %v with error %v", outputs, err)
		}
		if err == nil && checkOutputs(outputs) != nil {
			t.Fatalf("outputs that a model may not return: %q", outputs)
		}
		if err != nil && (len(err.Error()) > 1000 || !utf8.ValidString(err.Error())) {
			t.Fatalf("an error that cannot be sent: %q", err)
		}
	})
}
