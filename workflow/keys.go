package workflow

import "strings"

// level is a kind of map that the language knows.
type level uint8

const (
	inWorkflow level = iota
	inJob
	inStep
	inTask
	inNested
	inApproval
	inAssert
	inDependency
	inCondition
	inInput
	inForEach
	inRetry
	inBackoff
	inStop
	inConcurrency
	inPreferred
	levels // how many there are
)

// key is one key of a map of the language.
type key struct {
	name string
	typ  keyType
	doc  string
}

// keyType is what stands behind a key, as far as an editor wants to know.
type keyType uint8

const (
	anyKey keyType = iota
	textKey
	clearableKey // a text, or nothing
	scalarKey
	numberKey
	integerKey
	booleanKey
	textsKey // a map of texts
	valuesKey
	jobsKey
	stepsKey
	taskKey
	inputsKey
	jobNeedsKey
	stepNeedsKey
	conditionKey
	conditionsKey
	forEachKey
	retryKey
	backoffKey
	retryOnKey
	stopKey
	concurrencyKey
	preferKey
	typeNameKey
	taskTypeKey
	conditionTypeKey
	lostKey
	severityKey
	shellKey
	signalKey
	listKey
	argsKey
)

// String names a map of the level in a sentence.
func (l level) String() string {
	return [levels]string{
		"a workflow", "a job", "a step", "a task", "a workflow task", "a manual_approval", "an assert", "a dependency", "a condition",
		"an input", "forEach", "retry", "backoff", "stop", "concurrency", "a preference",
	}[l]
}

// keys are those that the level takes, in the order in which people are told of them.
func (l level) keys() []string {
	table := l.table()
	names := make([]string, len(table))
	for i, k := range table {
		names[i] = k.name
	}
	return names
}

// table is the one place that says which keys a map of the language takes: mistakes are told from it, and editors are.
func (l level) table() []key {
	shared := []key{
		{"env", textsKey, "Variables for the processes of the steps; the innermost wins, name by name."},
		{"labels", textsKey, "Labels that a worker must have."},
		{"target", clearableKey, "The name or instance uuid of the one worker that may run it."},
		{"platform", clearableKey, "os or os/arch in Go's names, such as linux/amd64."},
		{"queueTimeout", numberKey, "Seconds that a step may wait for a worker; 0 waits for ever."},
		{"onWorkerLost", lostKey, "What to do when a worker is lost: wait again or fail."},
		{"affinity", booleanKey, "Run all steps on one worker."},
		{"prefer", preferKey, "Labels that a worker should have, with weights."},
		{"spread", textKey, "The key of a label over whose values the steps are spread."},
		{"priority", numberKey, "A head start in line, in seconds of waiting."},
		{"concurrency", concurrencyKey, "How many run at once, and the group that waits in order."},
	}
	switch l {
	case inWorkflow:
		return append([]key{
			{"name", textKey, "What the workflow is called."},
			{"jobs", jobsKey, "The jobs."},
			{"inputs", inputsKey, "What a run can be given."},
			{"outputs", textsKey, "What a workflow that runs this one gets of it."},
		}, shared...)
	case inJob:
		return append([]key{
			{"name", textKey, "What the job is called."},
			{"steps", stepsKey, "The steps."},
			{"dependsOn", jobNeedsKey, "The jobs that have to end first."},
		}, shared...)
	case inStep:
		return append([]key{
			{"name", textKey, "What the step is called."},
			{"run", textKey, "A script."},
			{"task", taskKey, "What the step does if it is no script."},
			{"dependsOn", stepNeedsKey, "The steps of the job that have to end first."},
			{"timeout", numberKey, "Seconds that one attempt may run; 0 sets no limit."},
			{"forEach", forEachKey, "Run the step once for each item."},
			{"guard", scalarKey, "An expression: if it is true, the step is done already and is skipped."},
			{"allowFailure", booleanKey, "The job may succeed although this step fails."},
			{"retry", retryKey, "Try again when it fails."},
			{"stop", stopKey, "How its process is stopped."},
			{"workingDir", textKey, "The folder that the script runs in."},
			{"shell", shellKey, "What runs the script."},
		}, shared...)
	default:
		return l.smallTable()
	}
}

func (l level) smallTable() []key {
	switch l {
	case inTask:
		return []key{
			{"type", taskTypeKey, "What the step does."},
			{"modelType", textKey, "The model that is called."},
			{"methodName", textKey, "The method that is called."},
			{"inputs", argsKey, "The arguments."},
		}
	case inNested:
		return []key{
			{"type", taskTypeKey, "workflow"},
			{"file", textKey, "The file of the workflow, from the folder of this one."},
			{"inputs", argsKey, "Its inputs."},
		}
	case inApproval:
		return []key{
			{"type", taskTypeKey, "manual_approval"},
			{"prompt", textKey, "What the person is asked."},
			{"timeout", numberKey, "Seconds that it waits."},
		}
	case inAssert:
		return []key{
			{"type", taskTypeKey, "assert"},
			{"expr", scalarKey, "The expression that has to be true."},
			{"message", textKey, "What is said if it is not."},
			{"severity", severityKey, "How bad that is."},
		}
	case inDependency:
		return []key{
			{"step", textKey, "The name of the step."},
			{"job", textKey, "The name of the job."},
			{"condition", conditionKey, "After which end."},
		}
	case inCondition:
		return []key{
			{"type", conditionTypeKey, "Which end."},
			{"conditions", conditionsKey, "What 'and' and 'or' join."},
			{"condition", conditionKey, "What 'not' turns around."},
		}
	case inInput:
		return []key{
			{"type", typeNameKey, "The type of the value."},
			{"default", anyKey, "The value if none is given."},
			{"required", booleanKey, "A value has to be given."},
			{"enum", listKey, "The values that are taken."},
			{"description", textKey, "What it is for."},
		}
	case inForEach:
		return []key{
			{"item", textKey, "The name of the item: self.NAME."},
			{"in", valuesKey, "A list or a map, or an expression that gives one."},
		}
	case inRetry:
		return []key{
			{"max", integerKey, "How often it is tried again."},
			{"backoff", backoffKey, "Seconds before the first time, which double, or a map."},
			{"on", retryOnKey, "What is tried again: failure, lost, timeout, or exit codes."},
		}
	case inBackoff:
		return []key{
			{"initial", numberKey, "Seconds before the first time."},
			{"factor", numberKey, "What they are multiplied with each time."},
			{"max", numberKey, "The most seconds."},
		}
	case inStop:
		return []key{
			{"signal", signalKey, "The first signal."},
			{"grace", numberKey, "Seconds until the process is killed."},
		}
	case inConcurrency:
		return []key{
			{"max", integerKey, "How many run at once in a run."},
			{"group", textKey, "The group that waits in order, over all runs."},
			{"limit", integerKey, "How many of the group run at once."},
		}
	default:
		return []key{
			{"labels", textsKey, "The labels."},
			{"weight", integerKey, "What a worker that has them counts more."},
		}
	}
}

// unknown reports a key that the level does not take.
func (d *decoder) unknown(e *entry, l level) {
	if d.found.drop() {
		return
	}
	if near, ok := nearest(e.key, l.keys()); ok {
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
