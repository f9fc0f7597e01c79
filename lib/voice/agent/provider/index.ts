import { openai } from './openai.ts';
import type { ConnectProvider } from './provider.ts';
import { createRealtimeProvider, type Dialect, type RealtimeProviderDeps } from './realtime.ts';
import { connectStub } from './stub.ts';
import { xai } from './xai.ts';

const dialects: readonly Dialect[] = [
  openai,
  // Servers of the owner that take the requests of OpenAI (contract 05 §18).
  { ...openai, provider: 'local_realtime', label: 'Local' },
  xai,
];

/** The native realtime providers, and the stub, by their ids in the registry (contract 06 §9). */
export function createProviders(deps: RealtimeProviderDeps): (id: string) => ConnectProvider | undefined {
  const providers = new Map(dialects.map((dialect) => [dialect.provider, createRealtimeProvider(dialect, deps)]));
  providers.set('stub', connectStub);
  return (id) => providers.get(id);
}
