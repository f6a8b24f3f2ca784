// Tensors of a request from JSON, an image or an audio file. Everything is decoded in the browser.
const RATE = 16000;
const MOST_VALUES = 4_000_000;

export class BadInput extends Error {}

export function tensorsFromJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new BadInput(`The tensors are not JSON: ${error.message}`);
  }
  const inputs = Array.isArray(value) ? value : value?.inputs;
  if (!Array.isArray(inputs)) throw new BadInput("Write a list of tensors, or an object with `inputs`.");
  return Array.isArray(value) ? { inputs } : value;
}

// One tensor of the declared input. `-1` in a shape is any length.
const tensor = (declared, shape, data) => {
  if (data.length > MOST_VALUES) throw new BadInput("The file has too many values for a request of JSON.");
  return { inputs: [{ name: declared.name, datatype: declared.datatype, shape, data }] };
};

const inRange = (datatype) => (/^U?INT/.test(datatype) ? (value) => value : (value) => value / 255);

// An image in the declared shape: [N, 3, H, W], [N, H, W, 3], or without N; without declared sizes in its own size.
export async function tensorOfImage(file, declared) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new BadInput("The file is not an image that this browser reads.");
  });
  const sizes = declared.shape.slice(-3);
  const first = sizes.length === 3 && (sizes[0] === 3 || sizes[0] === 1) && sizes[2] !== 3;
  const [height, width] = (first ? sizes.slice(1) : sizes.slice(0, 2)).map(Number);
  const canvas = document.createElement("canvas");
  canvas.width = width > 0 ? width : bitmap.width;
  canvas.height = height > 0 ? height : bitmap.height;
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const channels = (first ? sizes[0] : sizes[2]) === 1 ? 1 : 3;
  const shape = first ? [channels, canvas.height, canvas.width] : [canvas.height, canvas.width, channels];
  const batch = declared.shape.slice(0, -3).map(() => 1);
  return tensor(declared, [...batch, ...shape], valuesOf(pixels, channels, first, inRange(declared.datatype)));
}

function valuesOf(pixels, channels, first, scaled) {
  const area = pixels.length / 4;
  const data = new Array(area * channels);
  for (let at = 0; at < area; at++) {
    const colour = [pixels[4 * at], pixels[4 * at + 1], pixels[4 * at + 2]];
    const values = channels === 3 ? colour : [0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]];
    values.forEach((value, channel) => {
      data[first ? channel * area + at : at * channels + channel] = scaled(channels === 3 ? value : Math.round(value));
    });
  }
  return data;
}

// An audio file as mono samples at 16 kHz.
export async function tensorOfAudio(file, declared) {
  const audio = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new BadInput("The file is not audio that this browser reads.");
  });
  const samples = new Array(audio.length).fill(0);
  for (let channel = 0; channel < audio.numberOfChannels; channel++) {
    audio.getChannelData(channel).forEach((value, at) => (samples[at] += value / audio.numberOfChannels));
  }
  const data = /^INT16/.test(declared.datatype) ? samples.map((value) => Math.round(value * 32767)) : samples;
  return tensor(declared, [...declared.shape.slice(0, -1).map(() => 1), data.length], data);
}

export const dataUrl = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new BadInput("The file cannot be read."));
    reader.readAsDataURL(file);
  });
