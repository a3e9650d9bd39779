package main

import (
	"fmt"
	"strings"

	"github.com/swampd/swampd/messages"
)

// benchLabel is what the bench's workers have and its workflows ask for.
func benchLabel() messages.Label { return messages.Label{Key: "bench", Value: "noop"} }

// workflowOf is a workflow of n parallel steps that do nothing.
func workflowOf(n int) string { return workflowWith(n, 1, modelNoop) }

// workflowWith is a workflow of n parallel steps of a model, of 1 demand class or of a multiple of 10, up to 100.
func workflowWith(n, classes int, model string) string {
	var b strings.Builder
	b.WriteString("name: bench\nlabels: {bench: noop}\nqueueTimeout: 0\njobs:\n  - name: main\n    steps:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - name: s%d\n        task: {type: model_method, modelType: %s, methodName: run}\n", i, model)
		if classes > 1 {
			fmt.Fprintf(&b, "        labels: {c%d: x, d%d: x}\n", i%classes/10, i%10)
		}
	}
	return b.String()
}

// labelsOf are those of a worker that can serve all demand classes.
func labelsOf(classes int) messages.Labels {
	labels := messages.Labels{benchLabel()}
	for i := range classes / 10 {
		labels = append(labels, messages.Label{Key: fmt.Sprintf("c%d", i), Value: "x"})
	}
	for i := range min(classes-1, 10) {
		labels = append(labels, messages.Label{Key: fmt.Sprintf("d%d", i), Value: "x"})
	}
	return labels
}

// printing is a workflow of one step that prints lines of 54 bytes.
func printing(lines int) string {
	return fmt.Sprintf(`name: bench
labels: {bench: noop}
queueTimeout: 0
jobs:
  - name: main
    steps:
      - name: print
        run: seq -f 'line %%010.0f of the output of a step in the bench, so' %d
`, lines)
}
