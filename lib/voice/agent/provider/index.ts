import { createOpenaiProvider } from './openai.ts';
import type { ConnectProvider } from './provider.ts';
import type { RealtimeProviderDeps } from './realtime.ts';
import { connectStub } from './stub.ts';
import { createXaiProvider } from './xai.ts';

/** The native realtime providers, and the stub, by their ids in the registry (contract 06 §9). */
export function createProviders(deps: RealtimeProviderDeps): (id: string) => ConnectProvider | undefined {
  const providers = new Map<string, ConnectProvider>([
    ['local_realtime', createOpenaiProvider(deps, { provider: 'local_realtime', label: 'Local' })],
    ['openai_realtime', createOpenaiProvider(deps)],
    ['stub', connectStub],
    ['xai_realtime', createXaiProvider(deps)],
  ]);
  return (id) => providers.get(id);
}
