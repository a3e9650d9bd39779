package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/swampd/swampd/messages"
)

func readProtocol(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// Every frame that the page shows is one, word for word: it decodes without an unknown field, says what checkFrame wants,
// and is what the orchestrator would write.
func TestProtocol_FramesOfThePage(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```json frame\n(.*?)```").FindAllStringSubmatch(readProtocol(t), -1)
	shown := map[string]bool{}
	for i, block := range blocks {
		var strict messages.Frame
		if err := protojson.Unmarshal([]byte(block[1]), &strict); err != nil {
			t.Errorf("block %d: %v\n%s", i, err, block[1])
			continue
		}
		f, err := messages.DecodeFrame([]byte(block[1]), messages.CodingJSON)
		if err == nil {
			err = checkFrame(f)
		}
		if err != nil {
			t.Errorf("block %d: %v\n%s", i, err, block[1])
			continue
		}
		for _, coding := range []messages.Coding{messages.CodingJSON, messages.CodingProtobuf} {
			data, err := messages.EncodeFrame(f, coding)
			if err != nil {
				t.Fatal(err)
			}
			again, err := messages.DecodeFrame(data, coding)
			if diff := cmp.Diff(f, again, protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("block %d in coding %d: %v %s", i, coding, err, diff)
			}
			if coding == messages.CodingJSON {
				if diff := cmp.Diff(anyJSON(t, block[1]), anyJSON(t, string(data))); diff != "" {
					t.Errorf("block %d (-page +wire):\n%s", i, diff)
				}
			}
		}
		shown[fmt.Sprintf("%T", f.GetBody())] = true
		if r := f.GetRequest(); r != nil {
			if messages.ParamsOf(r) == nil {
				t.Errorf("block %d: the params are not those of %s", i, r.GetVerb())
			}
			shown[r.GetVerb()] = true
		}
	}
	for _, body := range []string{"Request", "Response", "Error", "Event", "Cancel", "Ack"} {
		if !shown["*messages.Frame_"+body] {
			t.Errorf("the page shows no %s", body)
		}
	}
	for _, verb := range messages.AllVerbs() {
		if verb.From() != messages.PeerClient && !shown[string(verb)] {
			t.Errorf("the page shows no %s", verb)
		}
	}
}

func anyJSON(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The tables of codes are those of the program.
func TestProtocol_CodesOfThePage(t *testing.T) {
	t.Parallel()
	page := readProtocol(t)
	for _, code := range messages.AllRequestCodes() {
		permanent := "no"
		if code.Permanent() {
			permanent = "yes"
		}
		if row := fmt.Sprintf("\n| `%s` | %s | ", code, permanent); strings.Count(page, row) != 1 {
			t.Errorf("the table of errors has no row %q", row)
		}
		_, status := statusOf(code)
		if cell := fmt.Sprintf("| %d | `%s` |", status, code); strings.Count(page, cell) != 1 {
			t.Errorf("the table of statuses has no cell %q", cell)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| (yes|no) \\| ").FindAllString(page, -1)
	if len(rows) != len(messages.AllRequestCodes()) {
		t.Errorf("the table of errors has %d rows for %d codes", len(rows), len(messages.AllRequestCodes()))
	}
	for _, number := range []string{
		fmt.Sprintf("4 MiB (%d,%03d,%03d bytes)", messages.MaxFrame/1_000_000, messages.MaxFrame/1000%1000, messages.MaxFrame%1000),
		fmt.Sprintf("after\n%d of them it is closed", maxMalformed),
		fmt.Sprintf("has %d s to enroll", int(enrollTimeout.Seconds())),
		fmt.Sprintf("id of 1 to %d bytes", maxID),
		fmt.Sprintf("cut to %d bytes", maxReason),
		fmt.Sprintf("give it %d s at least", int(writeTimeout.Seconds())),
	} {
		if !strings.Contains(page, number) {
			t.Errorf("the page does not say %q", number)
		}
	}
}
