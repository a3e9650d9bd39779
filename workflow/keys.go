package workflow

import "strings"

// level is a kind of map that the language knows.
type level uint8

const (
	inWorkflow level = iota
	inJob
	inStep
	inTask
	inDependency
	inCondition
)

// String names a map of the level in a sentence.
func (l level) String() string {
	switch l {
	case inWorkflow:
		return "a workflow"
	case inJob:
		return "a job"
	case inStep:
		return "a step"
	case inTask:
		return "a task"
	case inDependency:
		return "a dependency"
	default:
		return "a condition"
	}
}

// keys are those that the level takes, in the order in which people are told of them.
func (l level) keys() []string {
	switch l {
	case inWorkflow:
		return []string{"name", "jobs", "env", "labels", "target", "platform", "queueTimeout", "onWorkerLost"}
	case inJob:
		return []string{"name", "steps", "dependsOn", "env", "labels", "target", "platform", "queueTimeout", "onWorkerLost"}
	case inStep:
		return []string{"name", "run", "task", "dependsOn", "timeout", "env", "labels", "target", "platform", "queueTimeout", "onWorkerLost"}
	case inTask:
		return []string{"type", "modelType", "methodName", "inputs"}
	case inDependency:
		return []string{"step", "job", "condition"}
	default:
		return []string{"type", "conditions", "condition"}
	}
}

// later are keys of the language that this version does not carry out. They are refused: a step that ran without its
// guard, or once instead of for each, would do what nobody asked for.
func (l level) later() []string {
	switch l {
	case inWorkflow:
		return []string{"inputs", "affinity", "concurrency"}
	case inJob:
		return []string{"affinity", "concurrency"}
	case inStep:
		return []string{"forEach", "guard", "allowFailure", "retry", "affinity", "concurrency"}
	default:
		return nil
	}
}

// unknown reports a key that the level does not take.
func (d *decoder) unknown(e *entry, l level) {
	for _, k := range l.later() {
		if e.key == k {
			d.found.add(e.at, "'%s' is not supported by this version", k)
			return
		}
	}
	if d.found.drop() {
		return
	}
	if near, ok := nearest(e.key, append(l.keys(), l.later()...)); ok {
		d.found.add(e.at, "unknown key %s in %s: did you mean '%s'?", quote(e.key), l, near)
		return
	}
	for _, other := range []level{inWorkflow, inJob, inStep} {
		for _, k := range other.keys() {
			if k == e.key {
				d.found.add(e.at, "unknown key '%s' in %s: it belongs in %s", k, l, other)
				return
			}
		}
	}
	d.found.add(e.at, "unknown key %s in %s, which takes %s", quote(e.key), l, strings.Join(l.keys(), ", "))
}

// nearest returns the word that was probably meant, if one is close.
func nearest(word string, words []string) (string, bool) {
	const maxWords = 500 // a suggestion is not worth more than that
	plain := simplify(word)
	best, least := "", 3
	for i, w := range words {
		if i == maxWords {
			break
		}
		s := simplify(w)
		limit := min(least-1, max(len(s), len(plain))/3)
		if s == plain {
			return w, true
		}
		if n := distance(plain, s, limit); n <= limit {
			best, least = w, n
		}
	}
	return best, best != ""
}

// simplify drops what people vary in a word: case, dashes and underscores.
func simplify(s string) string {
	const longest = 64
	b := make([]byte, 0, longest)
	for i := 0; i < len(s) && len(b) < longest; i++ {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			b = append(b, c+'a'-'A')
		case c != '_' && c != '-' && c != ' ':
			b = append(b, c)
		}
	}
	return string(b)
}

// distance counts the letters to insert, delete, replace or swap to make b out of a; above limit it returns any
// number above it.
func distance(a, b string, limit int) int {
	if limit < 1 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
