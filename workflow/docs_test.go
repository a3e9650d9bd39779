package workflow

import (
	"os"
	"strings"
	"testing"
)

// docBlocks are the examples of the page about workflow files, each made a whole file.
func docBlocks(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/workflow.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	heading := ""
	rest := string(page)
	for {
		before, after, ok := strings.Cut(rest, "```yaml\n")
		for line := range strings.Lines(before) {
			if strings.HasPrefix(line, "#") {
				heading = strings.TrimSpace(line)
			}
		}
		if !ok {
			return blocks
		}
		var block string
		block, rest, _ = strings.Cut(after, "```\n")
		if strings.HasPrefix(block, "jobs:") {
			block = "name: example\ninputs: {done: {type: string}}\n" + block
		}
		blocks[heading+" "+block[:20]] = block
	}
}

func TestDocs_EveryExampleIsAWorkflow(t *testing.T) {
	t.Parallel()
	blocks := docBlocks(t)
	if len(blocks) < 8 {
		t.Fatalf("only %d examples are found", len(blocks))
	}
	for where, src := range blocks {
		p, err := parse("docs", []byte(src), nil)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		for _, w := range p.Warnings {
			t.Errorf("%s: %s", where, w)
		}
	}
}

func TestDocs_EveryKeyIsDescribed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/workflow.md")
	if err != nil {
		t.Fatal(err)
	}
	for l := range levels {
		for _, key := range l.keys() {
			if !strings.Contains(string(page), "`"+key) && !strings.Contains(string(page), key+": ") {
				t.Errorf("the key '%s' of %s is nowhere in docs/workflow.md", key, l)
			}
		}
	}
}
