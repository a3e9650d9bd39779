package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
)

const (
	otlpTimeout = 30 * time.Second
	otlpPath    = "/v1/traces"
	// envOTLPHeaders is the variable that the exporters of OpenTelemetry take their headers from, as k=v,k=v.
	envOTLPHeaders = "OTEL_EXPORTER_OTLP_HEADERS"
)

// otlpClient sends spans to a collector: OTLP over HTTP in its JSON form. The library for that would make each program a
// third larger, for one request.
type otlpClient struct {
	url     string
	headers http.Header
	http    *http.Client
}

// newOTLP makes the client of a collector. A URL without a path gets the usual one.
func (a *app) newOTLP(endpoint string) (*otlpClient, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no http or https URL", endpoint)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = otlpPath
	}
	c := &otlpClient{url: u.String(), headers: http.Header{}, http: &http.Client{Timeout: otlpTimeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
	}}}
	text, _ := a.host.env(envOTLPHeaders)
	for _, pair := range strings.Split(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			plain, err := url.PathUnescape(strings.TrimSpace(value))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", envOTLPHeaders, err)
			}
			c.headers.Set(strings.TrimSpace(name), plain)
		}
	}
	return c, nil
}

// What OTLP calls things, in its JSON form: ids are hexadecimal, times are nanoseconds in text.
type (
	otlpRequest struct {
		ResourceSpans []otlpResource `json:"resourceSpans"`
	}
	otlpResource struct {
		Resource   otlpAttributes `json:"resource"`
		ScopeSpans []otlpScope    `json:"scopeSpans"`
	}
	otlpAttributes struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScope struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID           string          `json:"traceId"`
		SpanID            string          `json:"spanId"`
		ParentSpanID      string          `json:"parentSpanId,omitempty"`
		Name              string          `json:"name"`
		Kind              int             `json:"kind"`
		StartTimeUnixNano string          `json:"startTimeUnixNano"`
		EndTimeUnixNano   string          `json:"endTimeUnixNano"`
		Attributes        []otlpAttribute `json:"attributes"`
		Status            otlpStatus      `json:"status"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		StringValue string `json:"stringValue"`
	}
	otlpStatus struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	otlpResponse struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
			ErrorMessage  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
)

// Kinds and codes of OTLP.
const (
	otlpInternal = 1
	otlpServer   = 2
	otlpClientTo = 3
	otlpOK       = 1
	otlpError    = 2
)

// export sends the spans that have ended. It returns how many those are, and how many go on.
func (c *otlpClient) export(ctx context.Context, t *messages.ActorTraceResult) (sent, open int, err error) {
	spans, open := otlpSpans(t)
	if len(spans) == 0 {
		return 0, open, nil
	}
	scope := otlpScope{Spans: spans}
	scope.Scope.Name = "swampd"
	data, err := json.Marshal(otlpRequest{ResourceSpans: []otlpResource{{
		Resource: otlpAttributes{[]otlpAttribute{attribute("service.name", "swampd")}}, ScopeSpans: []otlpScope{scope},
	}}})
	if err != nil {
		return 0, open, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(data))
	if err != nil {
		return 0, open, err
	}
	req.Header = c.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, open, plainNetError(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return 0, open, err
	}
	if resp.StatusCode/100 != 2 {
		return 0, open, fmt.Errorf("it answers %s: %s", resp.Status, oneLine(fit(string(body), 200)))
	}
	var answer otlpResponse
	if json.Unmarshal(body, &answer) == nil { // an empty body, or one in protobuf, says that all is well
		if n := answer.PartialSuccess.RejectedSpans; n != "" && n != "0" {
			return 0, open, errors.New("it rejects " + n.String() + " spans: " + oneLine(answer.PartialSuccess.ErrorMessage))
		}
	}
	return len(spans), open, nil
}

func attribute(key, value string) otlpAttribute { return otlpAttribute{key, otlpValue{value}} }

// otlpSpans are the spans that have ended, and how many have not.
func otlpSpans(t *messages.ActorTraceResult) (spans []otlpSpan, open int) {
	for _, s := range t.GetSpans() {
		if s.GetEndedAt() == nil {
			open++
			continue
		}
		span := otlpSpan{
			TraceID: t.GetTraceId(), SpanID: s.GetSpanId(), ParentSpanID: s.GetParentId(), Name: s.GetName(), Kind: otlpInternal,
			StartTimeUnixNano: nanos(s.GetStartedAt()), EndTimeUnixNano: nanos(s.GetEndedAt()),
			Attributes: []otlpAttribute{attribute("swamp.run.id", t.GetRunId()), attribute("swamp.workflow", t.GetWorkflowName()), attribute("swamp.place", s.GetPlace())},
		}
		for _, more := range [][2]string{
			{"swamp.job", s.GetJob()}, {"swamp.step", s.GetStep()}, {"swamp.worker", s.GetWorker()}, {"swamp.dispatch.id", s.GetDispatchId()}, {"swamp.status", s.GetStatus()},
		} {
			if more[1] != "" {
				span.Attributes = append(span.Attributes, attribute(more[0], more[1]))
			}
		}
		if s.Attempt != nil {
			span.Attributes = append(span.Attributes, attribute("swamp.attempt", strconv.Itoa(int(s.GetAttempt()))))
		}
		switch s.GetPlace() {
		case "handover":
			span.Kind = otlpClientTo
		case "worker":
			span.Kind = otlpServer
		}
		switch s.GetStatus() {
		case "succeeded":
			span.Status.Code = otlpOK
		case "failed", "lost", "timeout":
			span.Status = otlpStatus{otlpError, s.GetError()}
		}
		spans = append(spans, span)
	}
	return spans, open
}

func nanos(t *timestamppb.Timestamp) string {
	return strconv.FormatInt(messages.GoTime(t).UnixNano(), 10)
}
