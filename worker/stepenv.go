package worker

import (
	"fmt"
	"strconv"
	"strings"
)

// ownPrefix is that of the variables which are the product's own. A step's workflow cannot set them.
const ownPrefix = "SWAMP"

// stepEnv is the whole environment of a step, each name once. base is the worker's: only the few names that inherits
// lets through are taken from it, so that neither a credential nor an odd shell variable reaches a step.
func stepEnv(base []string, t Task, s scratch) ([]string, error) {
	env := newEnvList()
	for _, entry := range base {
		if name, value, ok := cutEnv(entry); ok && inherits(name) {
			env.set(name, value)
		}
	}
	for _, name := range tempNames() {
		env.set(name, s.tmp)
	}
	for _, entry := range t.Env {
		name, value, ok := cutEnv(entry)
		if !ok {
			return nil, fmt.Errorf("%q is no environment variable", entry)
		}
		if strings.ContainsRune(entry, 0) {
			return nil, fmt.Errorf("environment variable %q contains a NUL byte", name)
		}
		if !strings.HasPrefix(envKey(name), ownPrefix) {
			env.set(name, value)
		}
	}
	if s.data != "" {
		env.set("SWAMP_DATA_URL", s.data)
	}
	for _, own := range [...]struct{ name, value string }{
		{"SWAMP_RUN_ID", t.RunID},
		{"SWAMP_WORKFLOW", t.Workflow},
		{"SWAMP_JOB", t.Job},
		{"SWAMP_STEP", t.Step},
		{"SWAMP_ATTEMPT", strconv.Itoa(t.Attempt)},
		{dispatchVariable, t.DispatchID},
		{"SWAMP_STEP_KEY", t.StepKey},
		{"SWAMP_WORKER", t.Worker},
		{"SWAMP_OUTPUT", s.output},
	} {
		if strings.ContainsRune(own.value, 0) {
			return nil, fmt.Errorf("%s contains a NUL byte", own.name)
		}
		env.set(own.name, own.value)
	}
	return env.entries, nil
}

// dispatchVariable also marks the processes of a step: what is left of it after its keeper was killed is found by it.
const dispatchVariable = "SWAMP_DISPATCH_ID"

// cutEnv splits KEY=VALUE. The search starts behind the first byte, since Windows has names like "=C:".
func cutEnv(entry string) (name, value string, ok bool) {
	if entry == "" {
		return "", "", false
	}
	i := strings.IndexByte(entry[1:], '=') + 1
	if i == 0 || entry[0] == '=' {
		return "", "", false
	}
	return entry[:i], entry[i+1:], true
}

// envList is an environment in which a later entry replaces an earlier one of the same name in its place.
type envList struct {
	entries []string
	at      map[string]int
}

func newEnvList() *envList { return &envList{at: make(map[string]int)} }

func (l *envList) set(name, value string) {
	key := envKey(name)
	if i, ok := l.at[key]; ok {
		l.entries[i] = name + "=" + value
		return
	}
	l.at[key] = len(l.entries)
	l.entries = append(l.entries, name+"="+value)
}

// lookupEnv returns the value of name in env, the last one if there are several.
func lookupEnv(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if n, v, ok := cutEnv(entry); ok && envKey(n) == envKey(name) {
			value = v
		}
	}
	return value
}
