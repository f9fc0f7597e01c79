import type { ConnectProvider } from './provider.ts';

/**
 * A provider without a network, for tests and for trying the whole path (contract 06 §9). It understands and says nothing:
 * the state machine answers each text itself (`core/stub.ts`).
 */
export const connectStub: ConnectProvider = async ({ signal }, onEvent) => {
  signal.throwIfAborted();
  onEvent({ type: 'ready', model: 'local-tone' });
  return {
    sendAudio() {},
    commitAudio() {},
    clearAudio() {},
    sendText() {},
    cancelResponse() {},
    sendToolResult() {},
    appendContext() {},
    truncate() {},
    requestResponse() {},
    pause() {},
    resume() {},
    close() {},
  };
};
