import { expect, it } from 'vitest';
import { startProviders } from './support.ts';

it('06 §9: is ready at once, and says nothing to anything', async () => {
  const { connect } = await startProviders();
  const { session, events } = await connect('stub');
  session.sendAudio(new Uint8Array(4), 16_000);
  session.commitAudio();
  session.requestResponse({ exactText: 'One' });
  session.close();
  expect(events).toEqual([{ type: 'ready', model: 'local-tone' }]);
});
