import { createParser } from 'eventsource-parser';

/** An event of a stream (`text/event-stream`). */
export interface StreamEvent {
  event: string;
  data: string;
  id?: string;
}

/** Reads an event stream to its end. A `fetch` can send headers, which `EventSource` cannot. */
export async function readEvents(body: ReadableStream<Uint8Array>, onEvent: (event: StreamEvent) => void) {
  const parser = createParser({
    onEvent: ({ event, data, id }) => onEvent({ event: event ?? 'message', data, id }),
  });
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) parser.feed(next.value);
}
