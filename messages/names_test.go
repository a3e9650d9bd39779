package messages_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/swampd/swampd/messages"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		ok   bool
	}{
		{"a", true},
		{"0", true},
		{"gpu-1", true},
		{"a.b_c-d", true},
		{"a-", true},
		{strings.Repeat("a", 64), true},
		{"", false},
		{strings.Repeat("a", 65), false},
		{"-a", false},
		{".a", false},
		{"_a", false},
		{"A", false},
		{"gpu 1", false},
		{"gpu/1", false},
		{"gpü", false},
		{"a\x00", false},
		{"loopback", false},
		{"all", false},
		{"loopback-1", true},
	}
	for _, tt := range tests {
		if err := messages.CheckName(tt.name); (err == nil) != tt.ok {
			t.Errorf("name %q: %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}

func TestCheckLabel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key, value string
		ok         bool
	}{
		{"gpu", "true", true},
		{"a", "", true},
		{"Example.com/some_key-1", "ü and spaces", true},
		{strings.Repeat("k", 63), strings.Repeat("v", 255), true},
		{"", "x", false},
		{strings.Repeat("k", 64), "", false},
		{"a b", "", false},
		{"a=b", "", false},
		{"a,b", "", false},
		{"schlüssel", "", false},
		{"k", strings.Repeat("v", 256), false},
		{"k", strings.Repeat("ü", 128), false},
		{"k", "line\nbreak", false},
		{"k", "tab\t", false},
		{"k", "bell\a", false},
		{"k", "\xff", false},
	}
	for _, tt := range tests {
		if err := messages.CheckLabel(tt.key, tt.value); (err == nil) != tt.ok {
			t.Errorf("label %q=%q: %v, want ok %v", tt.key, tt.value, err, tt.ok)
		}
	}
}

func TestSecret_PrintsStarsWhateverPrintsIt(t *testing.T) {
	t.Parallel()
	type holder struct{ Token messages.Secret }
	s := messages.Secret("hunter2")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("said", slog.Any("a", s), slog.Any("b", holder{s}), slog.Any("c", map[string]any{"t": s}))
	slog.New(slog.NewTextHandler(&log, nil)).Info("said", slog.Any("a", s), slog.Any("b", holder{s}))
	printed := log.String() + fmt.Sprint(s) + fmt.Sprintf("%v %s %q %+v %#v %v %+v %#v", s, s, s, s, s, holder{s}, &holder{s}, holder{s})
	if strings.Contains(printed, "hunter2") {
		t.Errorf("the secret was printed: %s", printed)
	}
	if !strings.Contains(printed, "***") {
		t.Errorf("no stars were printed: %s", printed)
	}
	if s.Reveal() != "hunter2" {
		t.Error("reveal does not reveal")
	}
}
