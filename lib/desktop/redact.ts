import { createRecorder } from '../dispatch/recorder.ts';
import { isSecretName } from '../kit/secret-names.ts';

/** Redacts tool arguments and results for the record: no secrets, at most a screenful (contract 07 §2.3). */
export const { redact, summarise } = createRecorder({
  placeholder: (key) => (isSecretName(key) ? '[redacted]' : undefined),
  isPrivateKey: () => false,
});
