package cli

import (
	"os"
	"strings"
	"testing"
)

// Each command that the walk-through shows is one that there is, with flags and arguments that it takes.
func TestDocs_InspectionShowsCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/inspection.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, line := range strings.Split(string(data), "\n") {
		words, ok := strings.CutPrefix(line, "$ swamp ")
		if !ok {
			continue
		}
		shown++
		a := &app{host: newTestHost(t).Host, program: Swamp, format: choiceValue{"log", []string{"log", "json"}}}
		cmd, args, err := a.root().Find(strings.Fields(words))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Errorf("%s: %v", line, err)
		} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if shown < 10 {
		t.Errorf("only %d commands are shown", shown)
	}
	for _, command := range []string{"swamp why", "swamp actor tree", "swamp actor inspect", "swamp actor watch", "swamp actor trace", "swamp actor top"} {
		if !strings.Contains(string(data), command) {
			t.Errorf("%s is not there", command)
		}
	}
}
