import { createRecorder } from '../dispatch/recorder.ts';
import { isSecretName } from '../kit/secret-names.ts';

/** What is written down of tools: no secrets, and no more than a screenful (contract 07 §2.3). */
export const { redact, summarise } = createRecorder({
  placeholder: (key) => (isSecretName(key) ? '[redacted]' : undefined),
  isPrivateKey: () => false,
});
