package messages_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// Scripts and workers decide by these words: renaming one breaks them, so the list is a golden file.
func TestCodes_AreTheWordsOfTheGoldenFile(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	seen := map[messages.Code]bool{}
	for _, c := range messages.AllRequestCodes() {
		kind := "transient"
		if c.Permanent() {
			kind = "permanent"
		}
		fmt.Fprintf(&b, "request %-22s %s\n", c, kind)
		if seen[c] {
			t.Errorf("code %s is listed twice", c)
		}
		seen[c] = true
	}
	for _, c := range messages.AllStepCodes() {
		fmt.Fprintf(&b, "step    %s\n", c)
	}
	golden(t, "codes.golden", b.String())
}

func TestCode_ThatIsNotKnownIsTransient(t *testing.T) {
	t.Parallel()
	for _, c := range []messages.Code{"", "of_a_newer_peer"} {
		if c.Permanent() {
			t.Errorf("code %q is permanent: a newer peer's transient word would never be tried again", c)
		}
	}
}

func TestFault_GoesOverTheWireAndBack(t *testing.T) {
	t.Parallel()
	fault := &messages.Fault{Code: messages.CodeInvalid, Text: "two mistakes", Details: []string{"one", "two"}}
	wrapped := fmt.Errorf("submit: %w", fault)
	if diff := cmp.Diff(fault, messages.ErrorOf(wrapped).Fault()); diff != "" {
		t.Errorf("fault (-sent +got):\n%s", diff)
	}
	if got := messages.CodeOf(wrapped); got != messages.CodeInvalid {
		t.Errorf("code of a wrapped fault is %s", got)
	}
	if !errors.Is(wrapped, &messages.Fault{Code: messages.CodeInvalid}) {
		t.Error("errors.Is does not find a fault by its code")
	}
	if errors.Is(wrapped, &messages.Fault{Code: messages.CodeExists}) {
		t.Error("errors.Is takes one code for another")
	}
}

func TestErrorOf_WhatIsNoFaultIsInternalWithoutItsText(t *testing.T) {
	t.Parallel()
	err := errors.New("open /secret/path: no such file")
	got := messages.ErrorOf(err)
	if got.GetCode() != string(messages.CodeInternal) || strings.Contains(got.GetText(), "secret") {
		t.Errorf("error on the wire: %v", got)
	}
	if code := messages.CodeOf(err); code != messages.CodeInternal {
		t.Errorf("code %s, want internal", code)
	}
}
