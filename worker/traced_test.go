package worker

import (
	"testing"

	"github.com/swampd/swampd/messages"
)

func TestTraced_TheFramesTraceIsInTheEnvironmentUnlessTheWorkflowSetsIt(t *testing.T) {
	t.Parallel()
	const trace = "00-01998f7e6f0e7cc19d0f1f1b3c1d2e3f-00f067aa0ba902b7-01"
	tests := []struct {
		name, trace, own, want string
	}{
		{"a trace", trace, "", trace},
		{"none", "", "", ""},
		{"no trace at all", "x; rm -rf /", "", ""},
		{"the workflow's own", trace, "mine", "mine"},
	}
	for _, tt := range tests {
		p := &messages.DispatchParams{DispatchId: "d", Env: []*messages.KeyValue{{Key: "A", Value: "b"}}}
		if tt.own != "" {
			p.Env = append(p.Env, &messages.KeyValue{Key: "TRACEPARENT", Value: tt.own})
		}
		before := len(p.GetEnv())
		env, err := stepEnv(nil, Task{Env: envOf(traced(p, tt.trace).GetEnv())}, scratch{})
		if err != nil {
			t.Fatal(err)
		}
		if got := lookupEnv(env, "TRACEPARENT"); got != tt.want || lookupEnv(env, "A") != "b" || len(p.GetEnv()) != before {
			t.Errorf("%s: it is %q, want %q; the frame has %v", tt.name, got, tt.want, p.GetEnv())
		}
	}
}
