package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
)

// Bounds of a query, so that none can hold the orchestrator up. What a page has not looked at the next one does.
const (
	maxQuery     = 4 << 10 // bytes of the expression
	queryCost    = 20_000  // of the expression for one record, in CEL's units
	queryPage    = 5_000_000
	queryRecords = 10_000  // looked at for a page
	queryBytes   = 2 << 20 // of what a page has
)

// queryFields are the names that a query may use: all fields of all that it runs over.
func queryFields() []string {
	fields := []string{"kind", "format", "status", "generation", "attempt", "hasWrites", "cancelRequested"}
	for _, m := range []proto.Message{
		&messages.ArtifactItem{}, &messages.WorkerItem{}, &messages.QueueItem{}, &messages.TokenItem{},
	} {
		of := m.ProtoReflect().Descriptor().Fields()
		for i := range of.Len() {
			fields = append(fields, of.Get(i).JSONName())
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// A query is a compiled expression.
type query struct {
	program cel.Program
	partial cel.Program // tells by the kind alone that it is false
	unknown []*cel.AttributePatternType
	cost    uint64 // so far
}

// newQuery compiles an expression. One that is none is refused with line and column.
func newQuery(text string) (*query, error) {
	switch {
	case text == "":
		return nil, messages.Faultf(messages.CodeInvalid, `a query is needed, such as kind == "artifact" && name.startsWith("reports/")`)
	case !utf8.ValidString(text):
		return nil, messages.Faultf(messages.CodeInvalid, "query:1:1: the expression is not UTF-8")
	case len(text) > maxQuery:
		return nil, messages.Faultf(messages.CodeInvalid, "a query has at most %d bytes, not %d", maxQuery, len(text))
	}
	fields := queryFields()
	options := make([]cel.EnvOption, 0, len(fields)+2)
	q := &query{}
	for _, f := range fields {
		options = append(options, cel.Variable(f, cel.DynType))
		if f != "kind" {
			q.unknown = append(q.unknown, cel.AttributePattern(f))
		}
	}
	env, err := cel.NewEnv(append(options, cel.ParserRecursionLimit(100), cel.ParserExpressionSizeLimit(maxQuery))...)
	if err != nil {
		return nil, fmt.Errorf("make the language of queries: %w", err)
	}
	ast, issues := env.Compile(text)
	if all := issues.Errors(); len(all) > 0 {
		at := all[0].Location // below the first where it is of the expression as a whole
		return nil, messages.Faultf(messages.CodeInvalid, "query:%d:%d: %s", max(at.Line(), 1), at.Column()+1, all[0].Message)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, messages.Faultf(messages.CodeInvalid, "query:1:1: the expression is a %s, and has to be true or false", t)
	}
	limits := []cel.ProgramOption{cel.CostLimit(queryCost), cel.InterruptCheckFrequency(100)}
	if q.program, err = env.Program(ast, limits...); err == nil {
		q.partial, err = env.Program(ast, append(limits, cel.EvalOptions(cel.OptPartialEval))...)
	}
	if err != nil {
		return nil, messages.Faultf(messages.CodeInvalid, "query:1:1: %s", err)
	}
	return q, nil
}

// wants tells whether the query can be true for any record of a kind.
func (q *query) wants(kind string) bool {
	vars, err := cel.PartialVars(map[string]any{"kind": kind}, q.unknown...)
	if err != nil {
		return true
	}
	result, _, err := q.partial.Eval(vars)
	return err != nil || result != types.False
}

// is tells whether the query is true for a record. An expression that has no value for it, as it compares what the record
// lacks, is not.
func (q *query) is(ctx context.Context, record map[string]any) bool {
	result, details, err := q.program.ContextEval(ctx, queryRecord(record))
	if details != nil && details.ActualCost() != nil {
		q.cost += *details.ActualCost()
	} else {
		q.cost += queryCost
	}
	return err == nil && result == types.True
}

// queryRecord gives an expression the fields of a record. One that the record lacks is null.
type queryRecord map[string]any

func (r queryRecord) ResolveName(name string) (any, bool) {
	v, ok := r[name]
	if !ok {
		v = nil
	}
	return queryValue(name, v), true
}

func (queryRecord) Parent() interpreter.Activation { return nil }

// queryValue makes whole numbers of JSON integers, so that they can be reckoned with; a time in milliseconds stays what it is.
func queryValue(name string, v any) any {
	f, ok := v.(float64)
	if ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 && !strings.HasSuffix(name, "Ms") {
		return int64(f)
	}
	return v
}

// querySource is one kind of record that queries run over. Each calls fn for its records whose id is above after, by id, until
// fn returns false.
type querySource struct {
	kind string
	each func(ctx context.Context, after string, fn func(id string, item proto.Message) bool) error
}

func (d *Data) querySources() []querySource {
	return []querySource{
		{"artifact", d.eachArtifact}, {"lease", d.eachLease}, {"pending", d.eachPending}, {"token", d.eachToken}, {"worker", d.eachWorker},
	}
}

// query has the records that an expression is true for, a page of them.
func (d *Data) query(ctx context.Context, p *messages.DataQueryParams) (proto.Message, error) {
	q, err := newQuery(p.GetQuery())
	if err != nil {
		return nil, err
	}
	from, after, _ := strings.Cut(p.GetCursor(), ":")
	page := &queryPageOf{query: q, limit: pageLimit(p.GetLimit()), result: &messages.DataQueryResult{}}
	for _, s := range d.querySources() {
		if s.kind < from || !q.wants(s.kind) {
			continue
		}
		start := ""
		if s.kind == from {
			start = after
		}
		err := s.each(ctx, start, func(id string, item proto.Message) bool { return page.take(ctx, s.kind, id, item) })
		if err = firstErr(page.err, err); err != nil {
			return nil, d.fault(err)
		}
		if page.full {
			break
		}
	}
	page.result.Count = int32(len(page.result.GetItems()))
	return page.result, nil
}

// firstErr is the first error that there is.
func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// queryPageOf gathers a page.
type queryPageOf struct {
	query  *query
	limit  int
	seen   int
	bytes  int
	full   bool
	err    error
	result *messages.DataQueryResult
}

// take looks at a record. It is false once the page is full.
func (p *queryPageOf) take(ctx context.Context, kind, id string, item proto.Message) bool {
	if p.err = context.Cause(ctx); p.err != nil {
		return false
	}
	record, size, err := queryItem(kind, item)
	if err != nil {
		p.err = err
		return false
	}
	p.seen++
	if p.query.is(ctx, record) {
		s, err := structpb.NewStruct(record)
		if err != nil {
			p.err = fmt.Errorf("make an item of a %s: %w", kind, err)
			return false
		}
		p.result.Items = append(p.result.Items, s)
		p.bytes += size
	}
	p.full = len(p.result.GetItems()) == p.limit || p.bytes >= queryBytes || p.seen == queryRecords || p.query.cost >= queryPage
	if p.full {
		cursor := kind + ":" + id
		p.result.Cursor = &cursor
	}
	return !p.full
}

// queryItem is a record as queries see it, and how large it is.
func queryItem(kind string, item proto.Message) (map[string]any, int, error) {
	if s, ok := item.(*structpb.Struct); ok { // it has no shape of its own
		record := s.AsMap()
		record["kind"] = kind
		return record, proto.Size(s), nil
	}
	data, err := messages.MarshalShape(item)
	if err != nil {
		return nil, 0, fmt.Errorf("encode a %s: %w", kind, err)
	}
	var record map[string]any
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, 0, fmt.Errorf("decode a %s: %w", kind, err)
	}
	switch kind {
	case "artifact":
		record["format"] = record["kind"]
	case "token":
		record["status"] = record["state"]
	}
	record["kind"] = kind
	return record, len(data), nil
}
