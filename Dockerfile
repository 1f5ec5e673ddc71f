# For NVIDIA GPUs (the host needs its driver and the container toolkit): docs/index.md has the commands.
# torch's wheels bring CUDA with them; gcc, which torch compiles kernels with, is in this image.
FROM python:3.11
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY recipes recipes
COPY data_gen data_gen
COPY eval eval
COPY uni_train uni_train
RUN pip install --no-cache-dir '.[eval,hf,serve]'
WORKDIR /work
ENTRYPOINT ["python", "-m", "uni_train"]
