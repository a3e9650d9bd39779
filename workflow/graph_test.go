package workflow

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func TestPlan_GraphIsDrawnAsInTheGoldenFiles(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/valid/expressions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse("expressions.yaml", src, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/graph.txt", p.Graph())
	golden(t, "testdata/graph.dot", p.GraphDOT())
	golden(t, "testdata/graph.svg", p.GraphSVG())
}

func TestPlan_GraphSVGIsXMLWhateverTheNamesAre(t *testing.T) {
	t.Parallel()
	for file, src := range sources(t, "valid") {
		p, err := parse(file, src, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(p.GraphSVG()))
		for {
			if _, err = d.Token(); err != nil {
				break
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", file, err)
		}
		for _, s := range p.Steps {
			if !strings.Contains(p.Graph(), s.Name) {
				t.Errorf("%s: the step %q is missing", file, s.Name)
			}
		}
	}
}
