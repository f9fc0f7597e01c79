import { describe, expect, it } from 'vitest';
import { deliver } from '../../../lib/mcp/deliver.ts';
import { createTestClock } from '../../support/clock.ts';

const KiB = 1024;

function source() {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    start: (given) => {
      controller = given;
    },
    cancel: () => {
      isCancelled = true;
    },
  });
  const response = new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  return {
    response,
    write: (size: number) => controller.enqueue(new Uint8Array(size).fill(97)),
    close: () => controller.close(),
    isCancelled: () => isCancelled,
  };
}

const turns = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
};

describe('responses of MCP', () => {
  it('what ends soon is one body; what goes on is a stream', async () => {
    const clock = createTestClock();
    const soon = source();
    soon.write(3);
    soon.close();
    const whole = await deliver(soon.response, { clock, isListening: false, done: () => {} });
    expect(whole.content).toBe('aaa');
    const later = source();
    later.write(3);
    const pending = deliver(later.response, { clock, isListening: false, done: () => {} });
    await clock.advanceAsync(300);
    expect((await pending).content).toBeInstanceOf(ReadableStream);
    expect(clock.pending).toBe(0);
  });

  it('a client that never reads gets no more than 1 MiB kept for it: then its stream ends', async () => {
    const { response, write, isCancelled } = source();
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    const sent = await deliver(response, { clock: createTestClock(), isListening: true, done });
    for (let chunk = 0; chunk < 24 && !isCancelled(); chunk++) {
      write(64 * KiB);
      await turns();
    }
    expect(isCancelled()).toBe(true);
    let size = 0;
    for await (const chunk of sent.content as unknown as AsyncIterable<Uint8Array>) size += chunk.byteLength;
    expect(size).toBeLessThan(100 * KiB);
    expect(isDone).toBe(true);
  });

  it('a client that leaves ends the source', async () => {
    const { response, isCancelled } = source();
    let ends = 0;
    const done = () => void ends++;
    const sent = await deliver(response, { clock: createTestClock(), isListening: true, done });
    await (sent.content as ReadableStream).cancel();
    await turns();
    expect([isCancelled(), ends]).toEqual([true, 1]);
  });
});
